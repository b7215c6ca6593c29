/* The legend: the verdicts by their colours, each a filter; blanks shown or hidden; which set of colours. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el } = SV.dom;
  const LEGEND = [
    ["acc", "accepted"],
    ["rej", "rejected"],
    ["cor", "correction"],
    ["bon", "bonus"],
    ["ski", "never examined"],
  ];

  const BLOCKS = ["acc", "cor", "bon"]; /* how the token looks in a block of the passes */

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
            title: SV.messages.say("legend." + cls),
            on: { click: () => board.setFilter(name) },
          },
          el("span", { class: "k t " + cls, "aria-hidden": "true" }, "Aa"),
          BLOCKS.includes(cls) ? el("i", { class: "block " + cls, "aria-hidden": "true" }) : null,
          name,
        ),
      ),
      el(
        "button",
        {
          class: "gramkey",
          "aria-pressed": "false",
          "data-filter": "forced",
          title: "Show only tokens that the grammar left no choice for",
          on: { click: () => board.setFilter("forced") },
        },
        el("span", { class: "k t acc", "data-forced": "", "aria-hidden": "true" }, "Aa"),
        "forced",
      ),
      /* A picture painted scale by scale has no drafted tokens: what its blocks say is who painted them. */
      ["pla", "cor"].map((cls, i) =>
        el(
          "span",
          { class: "scalekey" },
          el("i", { class: "block " + cls, "aria-hidden": "true" }),
          SV.messages.say(i ? "scale.small" : "scale.large"),
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
