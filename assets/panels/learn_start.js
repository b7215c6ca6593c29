/* Learn, first page: the idea in one moving picture, and the three lesson tracks. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText } = SpecViz.dom;
  const K = P.kit;
  const WORDS = ["blue", "because", "of", "the"],
    KEPT = 2,
    FIXED = "air";
  const SAY = [
    "The large model is slow because it reads all of its weights for every token it writes.",
    "So a cheap draft guesses the next few tokens. Four guesses here; they cost little.",
    "The large model reads all four guesses in one pass. That pass costs hardly more than a pass for one token.",
    "It keeps the guesses it agrees with, replaces the first one it does not, and drops the rest. Three " +
      "tokens from one pass, and the text is its own.",
  ];

  /* Draft, check, keep: four states of one small picture. It plays once when it is first seen, then rests on the last. */
  function picture() {
    const cell = (w, cls, i) => el("span", { class: "pn-tok " + cls, css: { "--i": i } }, w);
    const root = el(
      "div",
      { class: "pn-idea", "data-phase": "0" },
      el(
        "div",
        { class: "r draft" },
        el("em", null, "Draft"),
        WORDS.map((w, i) => cell(w, "dra", i)),
      ),
      el(
        "div",
        { class: "r pass" },
        el("em", null, "Large model"),
        el("span", { class: "bar" }, el("span", null, "one pass reads all four")),
      ),
      el(
        "div",
        { class: "r text" },
        el("em", null, "Text"),
        WORDS.slice(0, KEPT).map((w, i) => cell(w, "acc", i)),
        cell(FIXED, "cor", KEPT),
        el("small", null, "corrected here, the rest is dropped"),
      ),
    );
    const say = el("p", { class: "pn-say", "aria-live": "polite" }),
      dots = SAY.map((_, i) =>
        el("button", {
          type: "button",
          "aria-label": "Step " + (i + 1) + " of " + SAY.length,
          on: { click: () => go(i, true) },
        }),
      );
    const next = K.button("Next", () => go((phase + 1) % SAY.length, true));
    let phase = 0,
      timer = 0;
    function go(i, byHand) {
      if (byHand) clearTimeout(timer);
      phase = i;
      root.dataset.phase = String(i);
      setText(say, SAY[i]);
      setText(next, i === SAY.length - 1 ? "Again" : "Next");
      dots.forEach((d, k) => d.setAttribute("aria-current", String(k === i)));
    }
    const still = globalThis.matchMedia && matchMedia("(prefers-reduced-motion: reduce)").matches;
    function play() {
      if (still) return go(SAY.length - 1);
      const one = (i) => {
        go(i);
        if (i + 1 < SAY.length) timer = setTimeout(() => one(i + 1), 3600);
      };
      one(0);
    }
    return {
      root: el("div", { class: "pn-box" }, root, say, el("div", { class: "pn-row pn-dots" }, dots, next)),
      play,
      stop: () => clearTimeout(timer),
    };
  }

  function view(env) {
    const pic = picture();
    let played = false;
    const tracks = P.lessons.tracks.map((t) =>
      el(
        "button",
        { type: "button", class: "pn-track", "data-track": t.key, on: { click: () => P.lessons.start(env, t.key) } },
        el("b", null, t.title),
        el("span", null, t.about),
        el("small", null, `${t.steps.length} steps, about five minutes`),
      ),
    );
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "How one pass writes several tokens",
        K.lead(
          "Speculative decoding in one picture. Then take a lesson: each one moves the real board, step by " +
            "step, on the recording that lies there.",
        ),
      ),
      pic.root,
      el("h3", { class: "pn-gap" }, "Lessons"),
      el("div", { class: "pn-tracks" }, tracks),
    );
    return {
      root,
      update() {
        if (!played) {
          played = true;
          pic.play();
        }
      },
      destroy: () => pic.stop(),
    };
  }

  (P.views = P.views || {}).start = view;
})();
