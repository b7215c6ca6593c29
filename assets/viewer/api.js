/* The board as others may use it: panels, lessons, an exported page. What each call does stands at the top of board.js. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const CALM = ["token"]; /* stands on a calm board, too */
  const FIELDS = ["layout", "lane", "round", "phase", "node", "tab"];

  function make(board) {
    const api = {
      push: (text) => board.push(text),
      load: (trace) => board.open(trace),
      destroy: () => board.destroy(),
      blank: (text) => board.clear(text),
      say: (text, button) => {
        board.setStatus({ state: board.state, text, button });
        board.later();
      },
      caption: (what) => {
        board.caption = what;
        board.later();
      },
      cut: (id) => {
        board.setStatus({ state: "cut", text: SV.messages.say(id) });
        board.updateState();
        board.edge(1);
        board.later();
      },
      asked: () => board.header()?.prompt?.text ?? null,
      trace: () => board.records.slice(),
      on: (name, f) => board.on(name, f),
      where: () => where(board),
      end: () => board.end(),
      goto: (to) => go(board, to || {}),
      lead: (tab) => {
        board.led = tab ? SV.dom.who(board.st) : null; /* the next run is about something else */
        board.leads = tab;
        if (tab && tab !== "draft") go(board, { tab });
        board.later();
      },
      toTop: () => {
        SV.boardLayout.measure(board); /* it may have been out of sight */
        (board.narrow ? board.root : document.documentElement).scrollIntoView({ block: "start" });
      },
      setLayout: (name) => board.setLayout(name),
      play: () => {
        if (board.cur.mode !== "play") board.play();
      },
      pause: () => {
        if (board.cur.mode === "play") board.toggle();
      },
      link: () => link(board),
      follow: (hash) => follow(board, hash),
    };
    Object.defineProperty(api, "board", { value: board }); /* for tests and lessons */
    return api;
  }

  /* {layout, lane, round, phase, node, tab, t}: lane, round and node are those the inspector shows; round is -1 without one. */
  function where(board) {
    const s = board.seen || {};
    return {
      layout: board.race() ? "race" : "watch",
      lane: s.lane ?? null,
      round: s.round ?? -1,
      phase: s.phase ?? 0,
      node: s.node ?? null,
      tab: board.inspector.tab,
      t: board.now(),
    };
  }

  function go(board, to) {
    if (to.layout) board.setLayout(to.layout);
    const asked = board.st.lanes.get(to.lane);
    if (asked) board.showAnswer(SV.metrics.answerOf(asked));
    if (board.list().some((l) => l.id === to.lane)) board.focusLane(to.lane);
    const lane = board.focus();
    if (typeof to.tab === "string") {
      board.inspector.show(to.tab);
      if (!CALM.includes(to.tab)) SV.folding.numbers(board, true);
    }
    if (typeof to.tab === "string" || Number.isInteger(to.round)) board.shut.insp.set(true);
    if (!lane || !lane.committed) return;
    if (Number.isFinite(to.t) && board.race()) return board.seekTime(to.t);
    if (Number.isInteger(to.round))
      board.goto(to.round, Number.isInteger(to.phase) ? Math.min(4, Math.max(1, to.phase)) : 4);
    if (to.node === "tail" || Number.isInteger(to.node))
      board.selectNode(lane.id, Number.isInteger(to.round) ? board.cur.round : board.where().round, to.node, true);
    board.bring = Boolean(to.show);
    board.later();
  }

  /* "#layout=watch&lane=0&round=7&phase=4&node=2&tab=why": opens the same round with the same token selected. */
  function link(board) {
    const w = where(board),
      out = new URLSearchParams();
    for (const k of FIELDS)
      if (w[k] !== null && w[k] !== undefined && !(k === "node" && !board.ui.sel)) out.set(k, String(w[k]));
    return "#" + out;
  }
  function follow(board, hash) {
    const q = new URLSearchParams(
        String(hash || "")
          .replace(/^#/, "")
          .slice(0, 400),
      ),
      to = {};
    for (const k of FIELDS) {
      const x = q.get(k);
      if (x !== null) to[k] = /^\d{1,6}$/.test(x) ? Number(x) : x;
    }
    if (!Object.keys(to).length) return false;
    if (q.has("embed")) board.setEmbed(q.get("embed") !== "0");
    go(board, to);
    return true;
  }

  SV.api = { make, where };
})();
