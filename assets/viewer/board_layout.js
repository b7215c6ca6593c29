/* What the board consists of, in the order of the page, and how wide it is. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el } = SV.dom;

  function build(board) {
    board.blank = el(
      "div",
      { class: "blank" },
      el("b", null, "Nothing to show yet"),
      "Several tokens can arrive from one pass of a large model. Choose a method and press Run to watch it happen.",
    );
    board.stageHead = el(
      "div",
      { class: "phead extra" },
      el("h2", null, "Texts"),
      el("span", { class: "small quiet end" }, "what each method writes, and what it guessed that was not kept"),
    );
    board.stagePanel = el(
      "section",
      { class: "panel p-stage", "aria-label": "Text" },
      board.stageHead,
      el("p", { class: "prompt" }, SV.messages.say("stage.prompt"), (board.promptText = el("bdi"))),
      board.answers.root,
      board.lanePick.root,
      board.blank,
      board.lanesBox,
    );
    const key = (keys, what) =>
      el(
        "span",
        null,
        keys.map((k) => el("kbd", null, k)),
        what,
      );
    board.hints = el(
      "div",
      { class: "hints" },
      key(["space"], "play"),
      key(["\u2190", "\u2192"], "round"),
      key(["shift", "\u2190", "\u2192"], "phase"),
      key(["home", "end"], "first, last"),
      key(["m"], "blanks"),
      key(["[", "]"], "speed"),
    );
    board.announce = el("span", {
      "aria-live": "polite",
      css: { position: "absolute", width: "1px", height: "1px", overflow: "hidden", "clip-path": "inset(50%)" },
    });
    board.root.replaceChildren(
      board.ledger.say,
      board.headline.root,
      board.passes.root,
      el(
        "div",
        { class: "grid" },
        board.stagePanel,
        board.inspector.root,
        board.chart.root,
        board.ribbon.root,
        board.ledger.root,
      ),
      (board.drawerKey = el("button", {
        type: "button",
        class: "drawerkey",
        on: { click: () => SV.folding.numbers(board, !board.root.classList.contains("numbers")) },
      })),
      board.figures.root,
      board.hints,
      board.announce,
    );
    board.shut = SV.folding.all(board);
    board.root.classList.toggle("drawer", board.options.drawer === true);
    SV.folding.numbers(board, false);
    SV.boardPictures.add(board);
    board.lanes = new Map();
    board.links = new SV.link.Links(board);
    if (!board.root.hasAttribute("tabindex")) board.root.tabIndex = -1;
  }

  /* Widths decide by classes (see viewer.css), so that a board in a narrow column of a wide page is a narrow one. */
  function measure(board) {
    const w = board.root.clientWidth || 1000;
    board.width = w;
    board.scrubWidth = board.transport.scrub.clientWidth;
    board.narrow = w <= 640;
    board.mid = w <= 980;
    board.root.classList.toggle("narrow", board.narrow);
    board.root.classList.toggle("mid", board.mid);
    board.root.classList.toggle("tight", w < 1340); /* the legend goes below the player */
    board.wide = w >= 1560; /* a projector */
    board.root.classList.toggle("wide", board.wide);
    board.big = board.wide ? SV.dom.BIG : 1;
    board.strip = (board.narrow ? 20 : board.wide ? 44 : 28) + 2 * SV.passes.PAD;
  }

  SV.boardLayout = { build, measure };
})();
