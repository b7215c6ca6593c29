/* A lesson: acceptance, the price of a guess, the text and the machine. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { times } = SpecViz.dom;

  const { drafting, chainOf, pick, at, full, rejectedNode } = P.finds;

  const pays = [
    {
      title: "Two sides of one sum",
      find: (ls) => {
        const l = chainOf(ls);
        return at(l, l && l.rounds[0], { phase: 4 });
      },
      say: (ls) => {
        const l = chainOf(ls),
          g = l && !l.doubt && P.maths.gap(l);
        return g
          ? `A round gives ${g.tau.toFixed(2)} tokens here and costs ${(g.c * g.gamma + g.v).toFixed(2)} plain ` +
              `passes. The one over the other is the gain: ${times(g.tau / (g.c * g.gamma + g.v))} before ` +
              `overhead, ${times(g.measured)} by the clock.`
          : "A round gives several tokens and costs a draft and a pass. The one over the other is the gain.";
      },
    },
    {
      title: "How often is the guess right?",
      find: (ls) => {
        const l = chainOf(ls);
        return at(l, full(l), { phase: 4 });
      },
      say: (ls) => {
        const l = chainOf(ls),
          a = l && P.traceLanes.levels(l),
          n = l ? Math.max(...l.rounds.map((r) => r.depth)) : 0;
        return a && a.alpha !== null
          ? `At ${a.kept} of ${a.tried} places tried here: \u03b1 = ${a.alpha.toFixed(2)}. If each guess were ` +
              `right with that chance by itself, a draft of ${n} would survive whole ` +
              `${Math.round(100 * a.alpha ** n)} % of the time. Longer drafts reach further into doubt.`
          : "Acceptance, \u03b1, is the share of guesses that stay of those that were looked at. Longer drafts " +
              "reach further into doubt.";
      },
    },
    {
      title: "What does a guess cost?",
      find: (ls) => {
        const l = chainOf(ls);
        return at(l, full(l), { phase: 1 });
      },
      say: (ls) => {
        const l = chainOf(ls),
          g = l && !l.doubt && P.maths.gap(l);
        return g
          ? `A draft step costs ${g.c.toFixed(2)} of a plain pass here. A draft of ${g.gamma.toFixed(1)} ` +
              `tokens therefore costs ${(g.c * g.gamma).toFixed(2)} passes, and is paid whether or not it is ` +
              "kept."
          : "A draft step is paid whether or not it is kept. Ten steps of a draft ten times cheaper cost as " +
              "much as one more pass.";
      },
    },
    {
      title: "A hard place",
      tab: "why",
      find: (ls) => {
        const l = drafting(ls).find((x) => x.rounds.some((r) => r.why === "correction" && !r.path.length)),
          r = l && pick(l, (x) => x.why === "correction" && !x.path.length);
        return at(l, r, { phase: 4, node: rejectedNode(r) });
      },
      say: (ls) =>
        drafting(ls).some((l) => l.rounds.some((r) => r.why === "correction" && !r.path.length))
          ? "The first guess fails: one token, at more than the price of a plain step. Such rounds are why a " +
            "method can be slower than plain decoding. Names, numbers and turns of a story are where they " +
            "gather."
          : "In this trace no first guess failed. When one does, the round yields one token at more than the " +
            "price of a plain step.",
    },
    {
      title: "Race it",
      layout: "race",
      play: true,
      find: (ls) => {
        const l = drafting(ls)[0];
        return at(l, l && l.rounds[0]);
      },
      say: (ls) => {
        const best = ls
          .filter((l) => l.metrics.tokens_per_second)
          .sort((a, b) => b.metrics.tokens_per_second - a.metrics.tokens_per_second)[0];
        return best && ls.length > 1 && !ls.some((l) => l.doubt)
          ? `All lanes on one clock; each one ran only while it decoded itself. ${best.title} ends first here, ` +
              `at ${best.metrics.tokens_per_second.toFixed(0)} tokens per second. More tokens per pass do not ` +
              "always win: a tree keeps more and costs more."
          : ls.length > 1
            ? "All lanes on one clock; each one ran only while it decoded itself. More tokens per pass do not always " +
              "win: a tree keeps more and costs more."
            : "In a race all lanes share one clock, each recorded alone. This trace holds a single lane, so " +
              "there is nobody to race against.";
      },
    },
    {
      title: "The text decides too",
      find: () => null,
      quiet: true,
      say: () =>
        "Rewriting, code and answers that quote the question are full of copies: a lookup method finds them " +
        "for nearly nothing. Free prose at a high temperature is hard for every draft. Try the examples " +
        "beside the prompt: \u201cCopy and edit\u201d shows it at once.",
    },
    {
      title: "And so does the machine",
      find: () => null,
      quiet: true,
      link: ["lab", "hardware", "Open the Lab"],
      say: () =>
        "It pays while a pass waits for memory. Serve many answers at a time and the arithmetic is busy " +
        "already: then every rejected guess takes time from somebody else's token. The Lab's \u201cAnother " +
        "machine\u201d shows where that happens.",
    },
  ];

  (P.tracks = P.tracks || {}).pays = pays;
})();
