/* The legend: the verdicts by their colours, each a filter; blanks shown or hidden; which set of colours. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { el } = SV.dom;
  const LEGEND = [
    ["acc", "accepted"],
    ["rej", "rejected"],
    ["cor", "correction"],
    ["bon", "bonus"],
    ["ski", "never examined"],
  ];

  function build(board) {
    board.legend = el(
      "div",
      { class: "legend", role: "group", "aria-label": "Show only" },
      LEGEND.map(([cls, name]) =>
        el(
          "button",
          {
            "aria-pressed": "false",
            "data-filter": name,
            title: "Show only these",
            on: { click: () => board.setFilter(name) },
          },
          el("span", { class: "k t " + cls, "aria-hidden": "true" }, "Aa"),
          name,
        ),
      ),
      (board.asked = el("bdi", { class: "asked" })),
      el(
        "span",
        { class: "tools" },
        (board.marksBtn = el(
          "button",
          {
            class: "marks",
            "aria-pressed": "false",
            "aria-label": "Show blanks and open bytes",
            title: "Show blanks and open bytes (m)",
            on: { click: () => board.setMarks(!board.ui.marks) },
          },
          "\u00b7\u21b5",
        )),
        (board.colourPick = new SV.colours.Choice()).root,
      ),
    );
    board.filters = [...board.legend.querySelectorAll("[data-filter]")];
  }

  SV.legend = { LEGEND, build };
})();
