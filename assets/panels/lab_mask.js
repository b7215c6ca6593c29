/* Lab: the mask of structured output on both sides of the test, on the target only, and on the draft only. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, pct, f3 } = SpecViz.dom;
  const K = P.kit;
  const SIDES = {
    both: ["Both sides", "Right, and the draft proposes only what may be accepted."],
    target: ["The target only", "Right, and slower: what the draft proposes against the grammar is always refused."],
    draft: [
      "The draft only",
      "Wrong: the test compares with the unmasked target, so its own tokens break the grammar.",
    ],
  };
  const whole = (x) => (Number.isInteger(x) && x >= 0 ? x : 0);

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
