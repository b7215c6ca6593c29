/* Learn: the words, each in a sentence. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el } = SpecViz.dom;
  const K = P.kit;

  const GLOSSARY = [
    ["Acceptance probability, a", "The chance that a drafted token is kept: min(1, p/q) where it was drawn from q."],
    ["Acceptance rate", "Of the drafted tokens that were examined, the share that was kept."],
    [
      "Accepted length",
      "How many tokens one pass of the target gives on average, its own one included. Plain decoding has 1.",
    ],
    ["Baseline, plain decoding", "The target alone, one token per pass. What every speed-up is measured against."],
    [
      "Batch",
      "How many answers the model works on at once. Large batches keep the arithmetic busy, and leave less to gain.",
    ],
    ["Bonus token", "When every guess is kept, the pass has one more row: the target's own next token, for free."],
    [
      "Certificate",
      "The comparison of a greedy run with plain decoding: identical, different from a near-tie on, or wrong.",
    ],
    ["Chain", "A draft without branches: one guess after another."],
    ["Correction", "The target's own token in the place of the first rejected guess."],
    [
      "Draft and drafter",
      "The guess, and whatever makes it: a small model, extra heads, the target's own first layers, or copied text.",
    ],
    ["Draft tree", "Several guesses for the same place, each with its own continuation. One pass checks them all."],
    ["Draw, u", "A random number between 0 and 1. The guess is kept if u is below a."],
    [
      "Exact, lossless",
      "The output is what the target alone would give: the same text when greedy, the same probabilities when sampling.",
    ],
    ["Gamma, \u03b3", "How many tokens a round drafts in a row. Papers also write K."],
    ["Greedy, temperature 0", "Always the most probable token (argmax). Nothing is drawn at random."],
    ["KV cache", "Keys and values of the tokens read so far, kept so that they are not computed again."],
    ["Lane", "One method at work on the prompt, with knobs of its own. Lanes take turns, so each is measured alone."],
    ["Near-tie", "Two tokens with almost equal scores. Adding the same numbers in another order can swap them."],
    ["p and q", "The probability of a token: p in the target's distribution, q in the draft's."],
    [
      "Pass",
      "One forward run of the target over one or several rows. What speculative decoding saves. Also called target pass.",
    ],
    ["Prefill", "The first pass, over the prompt. Speculation does not make it faster, so it is kept apart."],
    [
      "Residual",
      "max(0, p \u2212 q), scaled to one: where the correction is drawn from, so that the probabilities come out as p.",
    ],
    ["Rollback", "Dropping the cache of rejected tokens, so that the next round starts from the true text."],
    [
      "Round",
      "One turn of the loop: draft, verify, judge, commit. Most methods take one pass of the target a round; some take several.",
    ],
    ["Row", "One position that a pass reads: the last token and each drafted one."],
    ["Skipped", "Drafted but never looked at, because a guess before it was rejected. Not the same as rejected."],
    ["Target", "The large model whose output is wanted. Also called verifier."],
    [
      "Tree attention mask",
      "Lets each drafted token see its own ancestors and nothing else, so that branches do not mix.",
    ],
  ];

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

  (P.views = P.views || {}).glossary = glossary;
  P.glossary = GLOSSARY;
})();
