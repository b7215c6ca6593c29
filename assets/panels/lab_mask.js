/* Lab: the mask of structured output on both sides of the test, on the target only, and on the draft only; and a mask that begins
   inside a draft, after a thought. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, pct, f3 } = SpecViz.dom;
  const K = P.kit;
  const SIDES = {
    both: ["Both sides", "Right, and the draft proposes only what may be accepted."],
    target: ["The target only", "Right, and slower: what the draft proposes against the grammar is always rejected."],
    draft: [
      "The draft only",
      "Wrong: the test compares with the unmasked target, so its own tokens break the grammar.",
    ],
  };
  const whole = (x) => (Number.isInteger(x) && x >= 0 ? x : 0);

  const LATE = {
    row: ["with the next token", "Right: rows of the draft after the end of the thought are masked in the same pass."],
    round: ["with the next pass", "Wrong: what the same pass writes after the end of the thought is free."],
    start: ["with the first token", "No thought: the grammar allows none."],
  };

  /* A grammar that begins after the thought, which may end inside a draft. */
  function late(env) {
    const tell = K.status(),
      out = el("div"),
      press = K.button("Run the three beginnings", go);
    async function go() {
      const paint = (got) => out.replaceChildren(...show(got));
      const got = await K.request(env.ctx, "late_grammar", {}, { press, tell, busy: "Running\u2026", part: paint });
      if (got) paint(got);
    }
    function show(got) {
      const rows = (Array.isArray(got.rows) ? got.rows : []).filter((row) => row && LATE[row.side]).slice(0, 3);
      return [
        K.table(
          [
            "The mask begins",
            { name: "Thought ended inside a draft", num: true },
            { name: "Answers keep to the grammar", num: true },
            { name: "Tokens of thought", num: true },
            { name: "Tokens a pass", num: true },
          ],
          rows.map((row) => [
            LATE[row.side][0],
            row.side === "start" ? "\u2013" : `${whole(row.inside)} of ${whole(row.runs)}`,
            `${whole(row.valid)} of ${whole(row.answered)}`,
            (whole(row.thought) / Math.max(1, whole(row.answered))).toFixed(1),
            (whole(row.tokens) / Math.max(1, whole(row.passes))).toFixed(2),
          ]),
          "Where the mask begins after a thought, and what becomes of the answer",
        ),
        ...rows.map((row) =>
          el(
            "p",
            { class: "pn-small" },
            el("b", null, `${LATE[row.side][0]}. `),
            LATE[row.side][1] + " ",
            row.sample ? el("q", null, K.say(row.sample, 300)) : null,
          ),
        ),
      ];
    }
    return el(
      "section",
      { "aria-label": "A grammar after a thought" },
      el("h3", null, "A grammar that begins after thinking"),
      el(
        "p",
        { class: "pn-prose" },
        "The model thinks freely, and only its answer follows the grammar. " +
          "The thought may end in the middle of a draft. The small " +
          "models here have no format for thoughts: the first full stop ends it.",
      ),
      el("div", { class: "pn-row" }, press),
      tell.root,
      out,
    );
  }

  function mask(env) {
    const tell = K.status(),
      out = el("div"),
      press = K.button("Run the three ways", () => go());
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Mask and draft",
        K.lead(
          "Structured output masks the distribution at every place. Where the mask is applied decides how much of the draft is " +
            "accepted, and whether the answer follows the right distribution at all.",
        ),
      ),
      el("div", null, press, tell.root),
      el("div", { class: "pn-box" }, out),
      late(env),
    );
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        "The same prompt and schema with the same seeds, at temperature 1, with speculative decoding.",
      ),
    );
    async function go() {
      const paint = (got) => out.replaceChildren(table(got));
      const got = await K.request(env.ctx, "mask_sides", {}, { press, tell, busy: "Running\u2026", part: paint });
      if (got) paint(got);
    }
    function table(got) {
      const rows = (Array.isArray(got.rows) ? got.rows : []).filter((row) => row && SIDES[row.side]).slice(0, 3);
      const cols = [
        "The mask is on",
        { name: "Accepted / tried", num: true },
        { name: "Tokens a pass", num: true },
        { name: "Keep to the grammar", num: true },
        { name: "Distance from the true distribution", num: true },
      ];
      return el(
        "div",
        null,
        K.table(
          cols,
          rows.map((row) => [
            SIDES[row.side][0],
            pct(whole(row.accepted) / Math.max(1, whole(row.tried))),
            (whole(row.tokens) / Math.max(1, whole(row.passes))).toFixed(2),
            `${whole(row.valid)} of ${whole(row.runs)}`,
            K.finite(row.distance) ? f3(row.distance) : "\u2013",
          ]),
          "Where the mask is applied, and what becomes of the draft and of the answer",
        ),
        rows.map((row) => el("p", { class: "pn-small" }, el("b", null, SIDES[row.side][0] + ". "), SIDES[row.side][1])),
        el(
          "p",
          { class: "pn-help" },
          "Distance: the mean total variation, at a place, between the distribution that was " +
            "followed and the target's with the mask.",
        ),
      );
    }
    return { root, update() {}, destroy() {} };
  }

  (P.views = P.views || {}).mask = mask;
})();
