/* Five tabs over one page: Watch and Race show the board, Lab, Learn and Traces a panel each. All of it happens in the browser;
   a panel's script and style come when its tab is first opened. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});
  const TABS = [
    ["watch", "Watch"],
    ["race", "Race"],
    ["lab", "Lab"],
    ["learn", "Learn"],
    ["traces", "Traces"],
  ];
  const HOSTS = ["race", "lab", "learn", "traces"];
  const names = TABS.map(([name]) => name),
    panels = new Map(),
    buttons = new Map();
  const $ = (id) => document.getElementById(id);
  const api = () => document.querySelector("#board .sv")?.svBoard || null;
  page.tab = "watch";
  page.board = api;
  page.asked = () =>
    api()
      ?.trace?.()
      .find((r) => r.type === "header")?.prompt?.text || "";

  /* ---- the switch ---- */
  function start(root, props, trigger) {
    page.files = props.files;
    page.story = props.story;
    page.large = props.large;
    page.models = props.models;
    page.titles = props.titles;
    page.mostCharacters = props.most_characters;
    page.drafts = props.drafts;
    page.days = props.days;
    page.send = trigger;
    const list = root.querySelector("[role=tablist]");
    for (const [name, title] of TABS) {
      const tab = document.createElement("button");
      tab.type = "button";
      tab.textContent = title;
      tab.id = "tab-" + name;
      tab.setAttribute("role", "tab");
      tab.addEventListener("click", () => go(name));
      list.append(tab);
      buttons.set(name, tab);
    }
    list.addEventListener("keydown", (event) => {
      const at = names.indexOf(page.tab),
        to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: 4 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      go(names[(to + 5) % 5]);
      buttons.get(page.tab).focus();
    });
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest?.("input, textarea, select, [contenteditable=true]");
      if (typing || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (/^[1-5]$/.test(event.key)) go(names[Number(event.key) - 1]);
    });
    addEventListener("hashchange", follow);
    addEventListener("popstate", follow);
    if (new URLSearchParams(location.search).get("embed") === "1") document.body.classList.add("pg-embed");
    /* the board may be mounted after the tab was chosen */
    whenBoard().then((board) => board?.setLayout?.(page.tab === "race" ? "race" : "watch"));
    follow(null, true).then(async () => {
      if (!new URLSearchParams(location.hash.slice(1)).has("run")) page.restoreCut(await whenBoard());
      if (new URLSearchParams(location.search).get("present") === "1") present();
      page.opening(await whenBoard()).catch(() => {}); /* without its scripts the recording plays as it is */
    });
    remember();
  }

  /* A visitor's own runs are kept by the panels' script, in the browser alone; it comes with the first of them. */
  async function remember() {
    const board = await whenBoard();
    const off = board?.on?.("change", () => {
      if (board.trace()[0]?.mode !== "live") return;
      off();
      scripts()
        .then(() => window.SpecVizPanels?.history?.watch(board))
        .catch(() => {});
    });
  }

  function go(name, { quiet = false } = {}) {
    if (!names.includes(name)) return;
    const body = $("page"),
      was = page.tab;
    page.tab = body.dataset.tab = name;
    if (name !== was) showBoard(false);
    for (const [key, tab] of buttons) {
      tab.setAttribute("aria-selected", String(key === name));
      tab.tabIndex = key === name ? 0 : -1;
    }
    const panel = $(name === "watch" || name === "race" ? "play" : "host-" + name);
    if (panel) {
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", "tab-" + name);
      for (const tab of buttons.values()) tab.removeAttribute("aria-controls");
      buttons.get(name).setAttribute("aria-controls", panel.id);
    }
    if (name === "watch" || name === "race") api()?.setLayout?.(name);
    document.dispatchEvent(new CustomEvent("specviz:tab", { detail: name }));
    if (!quiet && name !== was) history.pushState(null, "", "#page=" + name);
    if (HOSTS.includes(name)) open(name);
  }

  async function present() {
    await scripts();
    window.SpecVizPanels?.present?.start({ board: await whenBoard(), go });
  }

  /* A step of one of Learn's lessons, at once; its end leads back to where it was asked for. */
  async function lesson(key, step = 0) {
    const asked = page.tab;
    go("learn");
    await panels.get("learn");
    document.dispatchEvent(new CustomEvent("specviz:show", { detail: { kind: "learn", view: "start" } }));
    document.querySelector(`#host-learn [data-track="${key}"]`)?.click();
    const now = window.SpecVizPanels?.lessons.current();
    if (!now) return;
    now.back = asked;
    now.go(step);
  }

  /* Whether the board stands under a panel that drives it. */
  function showBoard(on) {
    $("page")?.classList.toggle("with-board", Boolean(on));
  }

  /* ---- panels ---- */
  const came = new Map();
  const load = (file) => {
    if (!came.has(file)) came.set(file, fetched(file));
    return came.get(file);
  };
  const fetched = (file) =>
    new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = (window.gradio_config?.root ?? "") + "/own/" + file + ".js";
      script.async = false; /* in the order in which they stand */
      script.onload = done;
      script.onerror = () => {
        came.delete(file);
        failed(new Error("A part of the page could not be loaded: reload it when the server is back."));
      };
      document.head.append(script);
    });
  let loaded = null;
  const scripts = () =>
    (loaded =
      loaded ||
      Promise.all(page.files.map(load)).catch((error) => {
        loaded = null;
        throw error;
      }));

  /* Some of the panels' scripts, before a tab needs all of them. */
  page.need = (files) => Promise.all(files.map(load));

  async function open(name) {
    const host = $("host-" + name)?.querySelector(".pg-host");
    if (!host) return;
    if (panels.has(name)) return (await panels.get(name))?.update?.();
    panels.set(
      name,
      mount(name, host).catch((error) => {
        host.textContent = error.message;
        panels.delete(name);
      }),
    );
  }
  async function mount(name, host) {
    host.textContent = "Loading\u2026";
    await scripts();
    const catalogue = await (page.cards =
      page.cards ||
      page.ask("catalogue").catch((error) => {
        page.cards = null;
        throw error;
      }));
    host.textContent = "";
    if (!window.SpecVizPanels?.mount) throw new Error("There is no such panel.");
    return window.SpecVizPanels.mount(host, name, {
      board: api(),
      catalogue,
      ask: page.ask,
      run,
      go,
      showBoard,
      chosen: () => (document.querySelector(".pg-pick")?.dataset.on || "").split(" ").filter(Boolean),
      opened: (trace) => {
        page.trace = trace || "";
        bind();
      },
      link: () => page.link(),
      linkWithRun: (keep) => page.linkWithRun(keep),
      days: page.days,
    });
  }

  /* ---- what a panel or a lesson may do ---- */
  /* {prompt, methods, knobs, temperature, top_p, length, seed, system, target, tab, follow}: fills the controls and presses Run.
     follow: a further turn of the conversation; else a new one begins. tab: where to show it (default: watch or race). */
  function run(config) {
    const here = $("prompt")?.querySelector("textarea")?.value.trim() || page.asked();
    page.pending = {
      ...(config?.follow ? {} : { prompt: here }),
      ...config,
    }; /* who names no prompt means the one in sight */
    page.trace = "";
    const several = Array.isArray(config?.methods) && config.methods.length > 1;
    if (config?.tab !== null) go(config?.tab || (several ? "race" : "watch"));
    page.send(config?.follow ? "select" : "submit");
  }

  /* ---- links ---- */
  let followed = null;
  async function follow(event, first) {
    if (location.hash === followed && !first) return;
    followed = location.hash;
    const to = page.readLink(location.hash);
    go(names.includes(to.page) ? to.page : first ? "watch" : page.tab, { quiet: true });
    if (Object.keys(to.set).length && !first) {
      /* at first the page fills its controls itself, see page.first */
      page.pending = to.set;
      page.send("input");
    }
    if (to.run) {
      page.trace = "";
      return again(to);
    }
    if (to.trace && to.trace !== page.trace && !(await openRecording(to.trace)))
      return; /* the recording on the board stays */
    if (to.place) (await whenBoard()).follow?.("#" + to.place);
  }
  /* Opens a recording on the board; whether it could be opened. about: what it shows, where the recording does not say. */
  async function openRecording(name, about) {
    try {
      const text = await page.traceText(name),
        shows = (r) => (r.type === "header" ? { ...r, about } : r);
      const why = (await whenBoard()).load(about ? SpecViz.reader.read(text).records.map(shows) : text);
      page.trace = why ? "" : name;
      if (!why) bind();
      return true;
    } catch {
      return false;
    }
  }
  /* The same where a visitor asks for it: side by side, from its beginning. */
  page.play = async (name, about) => {
    go("race");
    if (!(await openRecording(name, about))) return false;
    const board = await whenBoard();
    board.goto?.({ t: 0 });
    board.play?.();
    return true;
  };
  /* A recording was opened: the controls hold what made it, and it belongs to no conversation. */
  function bind() {
    const records = api()?.trace() || [];
    if (!records.some((r) => r.type === "header")) return;
    page.pending = page.settings(records, { predicted: "" });
    page.send("apply");
  }

  /* A link of somebody's own run: the run itself where the link carries it or the server keeps it, else an empty board; and its
     round once it was made. */
  async function again(to) {
    const board = await whenBoard(),
      lacks = page.lacks(to.set),
      alike = lacks ? "not all of it is here, so it may be another one" : page.alike(to.set.temperature, to.after),
      text = to.packed ? await page.unpack(to.packed) : to.stored ? await page.stored(to.stored) : "";
    if (text && !board.load(text)) {
      const name = "Run it again",
        press = () => {
          followAtEnd(board, to);
          run({ ...page.settings(board.trace(), { predicted: "" }), ...to.set, tab: page.tab });
        };
      board.say(`The run of this link. "${name}" makes it again: ${alike}.`, { name, press });
      board.follow("#" + to.place);
      return;
    }
    const round = Number(new URLSearchParams(to.place).get("round")),
      then = round >= 0 && to.place.includes("round") ? ` Then round ${round + 1} opens.` : "",
      gone = to.stored ? "The server does not have the run of this link, or no longer. " : "";
    board.blank(`${gone}This link makes a run again: press Run. ${alike[0].toUpperCase()}${alike.slice(1)}.${then}`);
    followAtEnd(board, to);
  }
  /* Once the link's run was made here, its round opens. */
  function followAtEnd(board, to) {
    const before = board.board.header();
    const off = board.on("change", () => {
      const { state } = document.querySelector("#board .sv").dataset;
      if (board.board.header() === before || !["done", "stopped"].includes(state)) return;
      if (board.asked() !== to.set.prompt) return;
      off();
      board.follow("#" + to.place);
    });
  }
  async function whenBoard() {
    for (let i = 0; i < 200 && !api(); i++) await new Promise((done) => setTimeout(done, 50));
    return api();
  }
  Object.assign(page, { start, go, run, lesson, present, showBoard });
})();
