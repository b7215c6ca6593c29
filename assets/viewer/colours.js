/* The colours of the verdicts: four sets, chosen by the reader and kept in the browser. Every state has a line, a frame or a
   sign of its own as well, so that a set without colour says the same. The sets themselves stand in viewer.css. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setAttr } = SV.dom;
  const SETS = [
    ["", "Blue and orange"],
    ["safe", "Colour-blind safe"],
    ["classic", "Green and red"],
    ["mono", "Print, without colour"],
  ];
  const KEY = "specviz.colours";

  /* Storage may be closed, as in a sandboxed frame: then the choice lasts as long as the page. */
  let chosen = null;
  function now() {
    if (chosen === null) {
      try {
        chosen = localStorage.getItem(KEY);
      } catch {
        chosen = "";
      }
    }
    return SETS.some(([name]) => name === chosen) ? chosen : "";
  }
  function choose(name) {
    chosen = name;
    try {
      localStorage.setItem(KEY, name);
    } catch {
      /* not kept */
    }
    for (const root of document.querySelectorAll(".sv")) applyPalette(root);
  }
  /* Any part of a page that uses the board's colours: its root is of class "sv". */
  function applyPalette(root) {
    setAttr(root, "data-colours", now());
  }

  class Choice {
    constructor() {
      this.list = el(
        "select",
        {
          "aria-label": "Colours of the verdicts",
          title: "Colours of the verdicts",
          on: { change: () => choose(this.list.value) },
        },
        SETS.map(([name, title]) => el("option", { value: name }, title)),
      );
      this.root = el(
        "span",
        { class: "colours" },
        ["acc", "rej", "cor", "bon"].map((c) => el("i", { class: c, "aria-hidden": "true" })),
        this.list,
      );
      this.list.value = now();
    }
  }

  /* The board's list follows what was chosen elsewhere. */
  const show = (board) => (board.colourPick.list.value = now());

  SV.colours = { SETS, Choice, now, choose, applyPalette, show };
})();
