/* The static site's shell: tabs over the board, Learn and Traces. Recordings come as scripts, since a page that was opened from
   a file may not fetch. #page=learn, #run=NAME and the board's own place (#round=7 and so on) work as links. */
(() => {
  "use strict";
  const site = globalThis.SpecVizSite,
    P = globalThis.SpecVizPanels;
  const TABS = { board: "Watch and Race", learn: "Learn", lab: "What if", traces: "Traces" };
  const NO_ENGINE =
    "This copy has no engine. Install specviz (pip install specviz) and start it with `specviz`, or open a Space that runs it.";
  const $ = (id) => document.getElementById(id);
  const root = document.querySelector("#host-board .sv");
  const waiting = new Map();
  const panels = {};
  let tab = "board",
    run = "";

  /* The scripts below traces/ call this. */
  site.opened = (name, text) => {
    site.traces[name] = text;
    waiting.get(name)?.(text);
    waiting.delete(name);
  };
  function traceText(name) {
    if (!site.library.some((one) => one.name === name)) return Promise.reject(new Error("There is no such recording."));
    if (site.traces[name]) return Promise.resolve(site.traces[name]);
    return new Promise((done, fail) => {
      waiting.set(name, done);
      const script = document.createElement("script");
      script.src = "traces/" + encodeURIComponent(name) + ".js";
      script.addEventListener("error", () => fail(new Error("The recording cannot be read.")));
      document.head.append(script);
    });
  }

  /* The viewer's colours follow a class of the page. */
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const scheme = () => document.documentElement.classList.toggle("dark", dark.matches);
  dark.addEventListener("change", scheme);
  scheme();

  const board = SpecVizBoard.mount(root, { options: { autoplay: true, plotly: false } });
  root.svBoard = board;
  const say = (sentence) => {
    $("notice").textContent = sentence || "";
  };

  async function open(name) {
    try {
      const text = await traceText(name);
      const why = board.load(text);
      say(why);
      if (why) return false;
      run = name;
      const about = site.library.find((one) => one.name === name);
      board.setLayout(about.layout || null);
      board.lead(about.panel || null);
      mark();
      return true;
    } catch (error) {
      say(error.message);
      return false;
    }
  }
  function mark() {
    for (const button of $("recordings").children)
      button.setAttribute("aria-pressed", String(button.dataset.name === run));
  }

  const answers = {
    library: () => site.library,
    library_trace: ({ name }) => traceText(name),
    unavailable: () => ({}),
    catalogue: () => site.catalogue,
  };
  const ctx = {
    board,
    catalogue: site.catalogue,
    ask: async (name, payload) => {
      if (!Object.hasOwn(answers, name)) throw new Error(NO_ENGINE);
      return answers[name](payload || {});
    },
    run: () => say(NO_ENGINE),
    go: (to) => go(to),
    opened: (name) => {
      run = name || "";
      mark();
    },
    link: () => location.href.split("#")[0] + "#" + place(),
  };
  function place() {
    const at = (board.link() || "").replace(/^#/, "");
    return (run ? "run=" + encodeURIComponent(run) : "") + (run && at ? "&" : "") + at;
  }

  function go(to, quiet) {
    const name = to === "watch" || to === "race" ? "board" : to;
    if (!Object.hasOwn(TABS, name)) return;
    if (to === "watch" || to === "race") board.setLayout(to);
    tab = name;
    for (const key of Object.keys(TABS)) {
      $("host-" + key).hidden = key !== name;
      const button = $("tab-" + key);
      button.setAttribute("aria-selected", String(key === name));
      button.tabIndex = key === name ? 0 : -1;
    }
    if (name !== "board") {
      if (panels[name]) panels[name].update();
      else panels[name] = P.mount($("host-" + name), name, ctx);
    }
    if (!quiet) history.replaceState(null, "", name === "board" ? "#" + place() : "#page=" + name);
  }

  async function follow() {
    const to = new URLSearchParams(location.hash.slice(1));
    const page = to.get("page"); /* links of the app work, too: trace is its name for run */
    const wanted = to.get("run") || to.get("trace") || run || site.library[0]?.name;
    if (wanted && wanted !== run) await open(wanted);
    if (to.has("round") || to.has("layout") || to.has("lane")) board.follow(location.hash);
    go(page && Object.hasOwn(TABS, page) ? page : page || "board", true);
  }

  /* Only what needs no engine. */
  P.kinds.lab = {
    label: "Experiments",
    items: P.kinds.lab.items.flatMap((one) => one.ways).filter((one) => ["whatif", "predict"].includes(one.key)),
  };
  P.kinds.learn = {
    label: "Chapters",
    items: P.kinds.learn.items.filter((one) => !["server", "present"].includes(one.key)),
  };
  P.kinds.traces = { label: "Traces", items: P.kinds.traces.items.filter((one) => one.key !== "take") };

  const names = Object.keys(TABS);
  for (const name of names) {
    const button = document.createElement("button");
    button.type = "button";
    button.id = "tab-" + name;
    button.setAttribute("role", "tab");
    button.setAttribute("aria-controls", "host-" + name);
    $("host-" + name).setAttribute("aria-labelledby", button.id);
    button.textContent = TABS[name];
    button.addEventListener("click", () => go(name));
    $("tabs").append(button);
  }
  $("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = names[(names.indexOf(tab) + step + names.length) % names.length];
    go(next);
    $("tab-" + next).focus();
  });
  for (const one of site.library) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.name = one.name;
    button.textContent = one.title;
    button.addEventListener("click", async () => {
      if (await open(one.name)) history.replaceState(null, "", "#" + place());
    });
    $("recordings").append(button);
  }
  addEventListener("hashchange", follow);
  follow();
})();
