/* Learn: the formula with this trace's numbers, what the field calls each number, and the words.
   Sources: Leviathan et al. 2211.17192; Spec-Bench; EAGLE, Medusa and Hydra papers; vLLM, llama.cpp and gpt-fast as they print it. */
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
      ours: "Accepted per round",
      key: "mean_accepted_tokens",
      others: [
        ["mean accepted", "gpt-fast"],
        ["accepted length, sometimes", "papers that leave the bonus out"],
      ],
      def: "accepted draft tokens / target passes. The same without the extra token: one less, unless the end of the text cut a round short.",
      value: (l) => f2(l.metrics.mean_accepted_tokens),
    },
    {
      ours: "Acceptance rate",
      key: "acceptance_rate",
      others: [
        ["\u03b1, acceptance rate", "Leviathan et al.; there an expectation"],
        ["tested rate", "some logs"],
      ],
      def: "accepted / tried. Tokens behind a refusal were never looked at and do not count.",
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

  const GLOSSARY = [
    ["Acceptance probability, a", "The chance that a drafted token is kept: min(1, p/q) where it was drawn from q."],
    ["Baseline, plain decoding", "The target alone, one token per pass. What every speed-up is measured against."],
    [
      "Batch",
      "How many answers the model works on at once. Large batches keep the arithmetic busy, and leave less to gain.",
    ],
    ["Bonus token", "When every guess is kept, the pass has one more row: the target's own next token, for free."],
    ["Certificate", "The comparison of a greedy run with plain decoding: identical, parted at a near-tie, or wrong."],
    ["Chain", "A draft without branches: one guess after another."],
    ["Correction", "The target's own token in the place of the first refused guess."],
    [
      "Draft and drafter",
      "The guess, and whatever makes it: a small model, extra heads, the target's own first layers, or copied text.",
    ],
    ["Draft tree", "Several guesses for the same place, each with its own continuation. One pass checks them all."],
    ["Draw, u", "A random number between 0 and 1. The guess is kept if u is below a."],
    [
      "Exact, lossless",
      "The output is what the target alone would give: the same text when greedy, the same odds when sampling.",
    ],
    ["Gamma, \u03b3", "How many tokens a round drafts in a row. Papers also write K."],
    ["Greedy, temperature 0", "Always the likeliest token. No chance is involved."],
    ["KV cache", "Keys and values of the tokens read so far, kept so that they are not computed again."],
    ["Near-tie", "Two tokens with almost equal scores. Adding the same numbers in another order can swap them."],
    ["p and q", "The odds of a token: p in the target's law, q in the draft's."],
    ["Pass", "One run of the target over one or several rows. The unit that speculative decoding saves."],
    ["Prefill", "The first pass, over the prompt. Speculation does not make it faster, so it is kept apart."],
    [
      "Residual",
      "max(0, p \u2212 q), scaled to one: where the correction is drawn from, so that the odds come out as p.",
    ],
    ["Rollback", "Dropping the cache of refused tokens, so that the next round starts from the true text."],
    ["Round", "One draft and one check."],
    ["Row", "One position that a pass reads: the last token and each drafted one."],
    ["Skipped", "Drafted but never looked at, because a guess before it was refused. Not the same as refused."],
    ["Target", "The large model whose output is wanted. Also called verifier."],
    [
      "Tree attention mask",
      "Lets each drafted token see its own ancestors and nothing else, so that branches do not mix.",
    ],
  ];

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
          term = (name, text, now) =>
            el(
              "div",
              null,
              el("dt", null, el("var", null, name)),
              el("dd", null, text, now ? el("b", null, " Here: " + now + ".") : null),
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
              P.parts.formula(g),
              el(
                "dl",
                { class: "pn-terms" },
                term("\u03b1", "acceptance: the chance that the next guess is kept.", g && g.alpha.toFixed(2)),
                term("\u03b3", "draft length: how many guesses in a row.", g && g.gamma.toFixed(g.gamma % 1 ? 1 : 0)),
                term("c", "price of a guess, in target passes.", g && g.c.toFixed(2)),
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
                  K.figures([
                    { label: "Promised", value: times(g.formula) },
                    { label: "Measured", value: times(g.measured), strong: true },
                    {
                      label: "Difference",
                      value:
                        (g.measured - g.formula >= 0 ? "+" : "\u2212") + Math.abs(g.measured - g.formula).toFixed(2),
                    },
                  ]),
                  el(
                    "p",
                    { class: "pn-prose pn-gap" },
                    "The formula lets every guess succeed with the same chance, each by itself, and takes a pass to cost the same however many rows it reads. Neither is quite so. The Lab shows how much each costs here.",
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
                "Papers and engines use the same words for different numbers. Here is ours, what others call it, and this run's value. Print the definition next to the number.",
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
                    el("span", { class: "v" }, l ? r.value(l, g) : "\u2013"),
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

  function glossary() {
    const list = el("dl", { class: "pn-gloss" }),
      none = K.small();
    const search = K.field({ label: "Find a word", type: "search", most: 60, on: fill });
    function fill() {
      const q = search.value.trim().toLowerCase(),
        hits = GLOSSARY.filter(([t, d]) => (t + " " + d).toLowerCase().includes(q));
      list.replaceChildren(...hits.map(([t, d]) => el("div", null, el("dt", null, t), el("dd", null, d))));
      none.textContent = hits.length ? "" : "That word is not here.";
    }
    fill();
    return {
      root: el(
        "div",
        { class: "pn-view" },
        K.head("Words", K.lead("Every term on this page, in a sentence.")),
        el("div", { class: "pn-filters one" }, search.root),
        none,
        list,
      ),
      update() {},
      destroy() {},
    };
  }

  Object.assign((P.views = P.views || {}), { formula, numbers, glossary });
  P.parts = { ...(P.parts || {}), ROSETTA, GLOSSARY };
})();
