/* Learn: the formula with this trace's numbers, and what the field calls each number.
   Sources: Leviathan et al. 2211.17192; Spec-Bench; EAGLE, Medusa and Hydra papers; vLLM, llama.cpp and gpt-fast
   as they print it. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times, pct, rate } = SpecViz.dom;
  const K = P.kit,
    M = P.maths;
  const f2 = (x) => (K.finite(x) ? x.toFixed(2) : "\u2013");

  /* ours, [what others call it], how it is made, value(lane, gap) */
  const ROSETTA = [
    {
      ours: "Tokens per target pass",
      key: "block_efficiency",
      others: [
        ["block efficiency", "Draft-model papers"],
        ["\u03c4, average acceptance length", "EAGLE, Medusa, Hydra"],
        ["mean accepted tokens, MAT", "Spec-Bench"],
        ["mean acceptance length", "vLLM"],
        ["compression ratio", "Lookahead, EAGLE's demo"],
      ],
      def: "committed tokens / target passes. The bonus or correction token counts, so plain decoding is exactly 1.",
      value: (l) => f2(l.metrics.block_efficiency),
    },
    {
      ours: "Accepted per pass",
      key: "mean_accepted_tokens",
      others: [
        ["mean accepted", "gpt-fast"],
        ["accepted length, sometimes", "papers that leave the bonus out"],
      ],
      def:
        "accepted draft tokens / target passes. The same without the extra token: one less, unless the end of " +
        "the text cut a round short.",
      value: (l) => f2(l.metrics.mean_accepted_tokens),
    },
    {
      ours: "Acceptance rate",
      key: "acceptance_rate",
      others: [
        ["\u03b1, acceptance rate", "Leviathan et al.; there an expectation"],
        ["tested rate", "some logs"],
      ],
      def: "accepted / tried. Tokens after a refusal were never examined and do not count.",
      value: (l) => pct(l.metrics.acceptance_rate),
    },
    {
      ours: "Draft kept",
      key: "draft_yield",
      others: [
        ["draft acceptance rate", "vLLM, llama.cpp"],
        ["draft tokens accepted", "LM Studio"],
        ["acceptance", "Spec-Bench"],
      ],
      def: "accepted / drafted. Falls when the draft grows, even if every guess is as good as before.",
      value: (l) => pct(l.metrics.draft_yield),
    },
    {
      ours: "Kept by position",
      key: "per_position",
      others: [["per-position acceptance rate", "vLLM"]],
      def: "rounds that kept their i-th draft token / all rounds. First three positions shown.",
      value: (l) =>
        l.metrics.per_position
          .slice(0, 3)
          .map((p) => pct(p.rate))
          .join(", ") || "\u2013",
    },
    {
      ours: "Kept, once reached",
      key: "conditional",
      others: [["n-\u03b1: 0-\u03b1, 1-\u03b1, \u2026", "EAGLE, close to this"]],
      def: "rounds that kept their i-th draft token / rounds that tried it. First three positions.",
      value: (l) =>
        l.metrics.per_position
          .slice(0, 3)
          .map((p) => pct(p.conditional))
          .join(", ") || "\u2013",
    },
    {
      ours: "Speed-up",
      key: "walltime_speedup",
      others: [
        ["walltime improvement", "Leviathan et al."],
        ["speedup ratio", "EAGLE, Spec-Bench"],
      ],
      def: "seconds per token of plain decoding / ours: same target, prompt and machine, in one run.",
      value: (l) => times(l.metrics.walltime_speedup),
    },
    {
      ours: "Price of a draft step",
      key: "c",
      others: [["c, cost coefficient", "Leviathan et al."]],
      def: "seconds of one draft step / seconds of a plain target pass.",
      value: (l, g) => (g ? f2(g.c) : "\u2013"),
    },
    {
      ours: "Tokens per second",
      key: "tokens_per_second",
      others: [
        ["throughput; TPS", "everybody"],
        ["decode speed", "engines"],
      ],
      def: "committed tokens / engine seconds after the prefill. Time spent drawing this page is never in it.",
      value: (l) => rate(l.metrics.tokens_per_second),
    },
  ];

  const TIMED = ["walltime_speedup", "c", "tokens_per_second"];

  function formula(env) {
    const root = el("div", { class: "pn-view" });
    let last;
    return {
      root,
      update() {
        const l = env.lane();
        if (l === last && root.firstChild) return;
        last = l;
        const g = l && M.gap(l),
          term = (name, text, now, doubt) =>
            el(
              "div",
              null,
              el("dt", null, el("var", null, name)),
              el("dd", null, text, now && !doubt ? el("b", null, " Here: " + now + ".") : null),
            );
        root.replaceChildren(
          ...[
            K.head(
              "How fast should it be?",
              K.lead("The oldest formula of the field, with the numbers of the run on the board."),
            ),
            l ? env.laneLine(l) : null,
            el(
              "div",
              { class: "pn-box" },
              P.formula(g, Boolean(l && l.doubt)),
              el(
                "dl",
                { class: "pn-terms" },
                term("\u03b1", "acceptance: the chance that the next guess is kept.", g && g.alpha.toFixed(2)),
                term("\u03b3", "draft length: how many guesses in a row.", g && g.gamma.toFixed(g.gamma % 1 ? 1 : 0)),
                term("c", "price of a guess, in target passes.", g && g.c.toFixed(2), l && l.doubt),
                el(
                  "div",
                  null,
                  el("dt", null, "above"),
                  el(
                    "dd",
                    null,
                    "expected tokens of a round: 1 + \u03b1 + \u03b1\u00b2 + \u2026 + \u03b1",
                    el("sup", null, "\u03b3"),
                    ". The 1 is the token that the target itself always adds.",
                    g ? el("b", null, ` Here: ${g.iid.toFixed(2)}; counted: ${g.tau.toFixed(2)}.`) : null,
                  ),
                ),
                el(
                  "div",
                  null,
                  el("dt", null, "below"),
                  el(
                    "dd",
                    null,
                    "what the round costs: \u03b3 guesses and one pass.",
                    g ? el("b", null, ` Here: ${(g.c * g.gamma + 1).toFixed(2)} passes.`) : null,
                  ),
                ),
              ),
            ),
            g
              ? el(
                  "div",
                  { class: "pn-box" },
                  K.figures(
                    [
                      { label: "Promised", value: times(g.formula) },
                      { label: "Measured", value: times(g.measured), strong: true, timed: true },
                      {
                        label: "Difference",
                        value:
                          (g.measured - g.formula >= 0 ? "+" : "\u2212") + Math.abs(g.measured - g.formula).toFixed(2),
                        timed: true,
                      },
                    ],
                    l.doubt,
                  ),
                  el(
                    "p",
                    { class: "pn-prose pn-gap" },
                    "The formula lets every guess succeed with the same chance, each by itself, and takes a " +
                      "pass to cost the same however many rows it reads. Neither is quite so. The Lab shows " +
                      "how much each costs here.",
                  ),
                  el(
                    "div",
                    { class: "pn-row" },
                    K.button("Where the difference went", () => {
                      env.go("lab");
                      document.dispatchEvent(
                        new CustomEvent("specviz:show", { detail: { kind: "lab", view: "predict" } }),
                      );
                    }),
                  ),
                )
              : env.empty("", "With a drafting lane and a plain lane on the board, the numbers appear here."),
          ].filter(Boolean),
        );
      },
      destroy() {},
    };
  }

  function numbers(env) {
    const root = el("div", { class: "pn-view" });
    let last;
    return {
      root,
      update() {
        const l = env.lane();
        if (l === last && root.firstChild) return;
        last = l;
        const g = l && M.gap(l);
        root.replaceChildren(
          ...[
            K.head(
              "What is it called elsewhere?",
              K.lead(
                "Papers and engines use the same words for different numbers. Here is ours, what others call " +
                  "it, and this run's value. Print the definition next to the number.",
              ),
            ),
            l ? env.laneLine(l) : null,
            el(
              "div",
              { class: "pn-stone" },
              ROSETTA.map((r) =>
                el(
                  "section",
                  { class: "pn-box" },
                  el(
                    "div",
                    { class: "t" },
                    el("h3", null, r.ours),
                    el(
                      "span",
                      { class: "v" },
                      !l ? "\u2013" : l.doubt && TIMED.includes(r.key) ? K.unnamed() : r.value(l, g),
                    ),
                  ),
                  el("p", { class: "pn-small" }, r.def),
                  el(
                    "ul",
                    null,
                    r.others.map(([name, who]) => el("li", null, el("b", null, name), el("span", null, who))),
                  ),
                ),
              ),
            ),
          ].filter(Boolean),
        );
      },
      destroy() {},
    };
  }

  Object.assign((P.views = P.views || {}), { formula, numbers });
})();
