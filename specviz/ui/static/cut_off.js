/* A run whose server is gone. The badge says so and what was written stays, also when the page is loaded anew, which Gradio does
   as soon as a server that was started again answers. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});
  const KEY = "specviz.cut.1",
    LOOK = 1000 /* ms between two looks */,
    SILENT = 3000; /* ms without a frame, after which the server is asked */
  const root = () => /** @type {any} */ (document.querySelector("#board .sv"));
  const inFlight = () => root()?.dataset.state === "live";
  let seen = "",
    since = 0,
    cut = false;

  /* The name of the server's process; "" where none answers. */
  async function server() {
    try {
      const answer = await fetch((window.gradio_config?.root ?? "") + "/gradio_api/app_id", { cache: "no-store" });
      return answer.ok ? String((await answer.json()).app_id) : "";
    } catch {
      return "";
    }
  }
  async function look() {
    const now = root()?.dataset.seq ?? "";
    if (cut && root()?.dataset.state !== "cut") forget();
    if (!inFlight() || now !== seen) {
      seen = now;
      since = Date.now();
      return;
    }
    if (Date.now() - since < SILENT) return;
    since = Date.now();
    const own = String(window.gradio_config?.app_id ?? ""),
      other = await server();
    if (inFlight() && root().dataset.seq === seen && (!other || (own && other !== own))) end();
  }
  function end() {
    cut = true;
    keep();
    root().svBoard.cut("cut.gone");
  }
  /* The run went on: only the network was away. */
  function forget() {
    cut = false;
    try {
      sessionStorage.removeItem(KEY);
    } catch {
      /* a browser that keeps nothing */
    }
  }
  function keep() {
    try {
      const records = root()?.svBoard?.trace() ?? [];
      sessionStorage.setItem(KEY, records.map((record) => JSON.stringify(record)).join("\n"));
    } catch {
      /* a browser that keeps nothing, or not so much */
    }
  }
  addEventListener("pagehide", () => {
    if (inFlight() && !cut) keep();
  });

  /* The run that was cut off before this page was loaded; true where it stands on the board. */
  page.restoreCut = (board) => {
    let text = "";
    try {
      text = sessionStorage.getItem(KEY) || "";
      sessionStorage.removeItem(KEY);
    } catch {
      /* a browser that keeps nothing */
    }
    if (!text || board.load(text)) return false;
    board.cut("cut.back");
    page.restored = true;
    return true;
  };
  setInterval(look, LOOK);
})();
