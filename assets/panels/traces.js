/* Traces: its views, and the states a board can be in. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el } = SpecViz.dom;
  const K = P.kit;

  const STATES = [
    ["", "Ready", "Press Run, or open a recorded trace.", "Nothing has run. The board invites."],
    ["busy", "Loading", "Reading the models: 34 of 62 MB.", "Once, at the first Run. Recordings play meanwhile."],
    [
      "busy",
      "Queued",
      "2 runs before yours, about 20 seconds.",
      "One run at a time on one processor, so that times are honest.",
    ],
    ["live", "Live", "Running now on this server.", "Every figure is the engine's own clock."],
    ["recorded", "Recorded", "Recorded on a named machine, on a named day.", "It happened, elsewhere and earlier."],
    ["simulated", "Simulated", "Hand-made trace. No model ran.", "The only dashed frame."],
    ["busy", "Stopped", "Stopped; what was written is kept.", "The rounds so far stay playable."],
    [
      "error",
      "Error",
      "The prompt is longer than the model's context.",
      "One sentence, one thing to do. The last trace stays.",
    ],
  ];
  function states() {
    return {
      root: el(
        "div",
        { class: "pn-view" },
        K.head(
          "What the badge says",
          K.lead("One badge and one sentence always stand above the board: they say where its numbers come from."),
        ),
        el(
          "div",
          { class: "pn-states" },
          STATES.map(([mode, word, say, why]) =>
            el(
              "div",
              { class: "pn-box" },
              el(
                "div",
                { class: "notice" },
                el("span", { class: "mode", "data-mode": mode || "busy" }, el("i"), el("span", null, word)),
                el("span", { class: "say" }, say),
              ),
              K.small(why),
            ),
          ),
        ),
      ),
      update() {},
      destroy() {},
    };
  }

  (P.views = P.views || {}).states = states;
  P.kinds = {
    ...(P.kinds || {}),
    traces: {
      label: "Traces",
      items: [
        { key: "library", title: "Recordings", line: "Open one, or a file" },
        { key: "take", title: "Take it home", line: "Files, links, slides" },
        { key: "history", title: "Your runs", line: "Kept in this browser" },
        { key: "predictability", title: "Where it was easy", line: "The text, shaded" },
        { key: "states", title: "What the badge says", line: "Live, recorded, simulated" },
      ],
    },
  };
})();
