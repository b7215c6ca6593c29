/* The story's scenes. Each has a text, whose figures come from the recording, and a place on the figure for every position of
   the reader: at(story, x), x from 0 (the scene begins) to 1 (it ends). A scene whose subject the recording lacks says so in
   general words, or is left out (`needs`).
   story: {lanes, plain, chain, tree, drawn}: lanes of P.traceLanes; drawn: the lanes of a sampled recording, or null. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { times, count, rate, f3 } = SpecViz.dom;
  const { pick, full, refused, rejectedNode, tau, word, chainOf, treeOf, plainOf, drafting } = P.finds;

  const step = (x, n) => Math.max(0, Math.min(n - 1, Math.floor(x * n)));
  const passes = (l) => l.metrics.passes ?? l.rounds.length;
  const on = (l, r, more) => (l && r ? { layout: "watch", lane: l.id, round: r.i, phase: 4, ...more } : null);
  const counted = (l) => Boolean(l) && !l.doubt;
  const ratio = (x) => (x >= 10 ? x.toFixed(0) : x.toFixed(1));
  const words = (l, ids, all) => {
    const list = ids.map((id) => word(l, all[id].tok)),
      last = list.pop();
    return list.length ? `${list.join(", ")} and ${last}` : last;
  };

  /* The first round of a lane that shows its kind of draft whole: kept to the end, else the longest kept. */
  const shown = (l) => full(l);
  /* A round whose first guess failed. */
  const lost = (l) => pick(l, (r) => r.why === "correction" && !r.path.length) || refused(l);
  const draws = (l) =>
    pick(l, (r) => r.raw.trials.some((j) => j.verdict === "rejected" && j.a !== null && j.u !== null && j.a > 0.02)) ||
    pick(l, (r) => r.raw.trials.some((j) => j.a !== null && j.u !== null && j.a > 0.02 && j.a < 0.98));
  const drawnOf = (s) => (s.drawn ? drafting(s.drawn).find((l) => draws(l)) || null : null);
  const trialOf = (r) =>
    r.raw.trials.find((j) => j.verdict === "rejected" && j.a !== null && j.u !== null) ||
    r.raw.trials.find((j) => j.a !== null && j.u !== null && j.a < 0.98);

  const scenes = [
    {
      key: "open",
      title: "The same text in fewer passes",
      part: "text",
      at: (s) => on(s.chain, s.chain && s.chain.rounds[s.chain.rounds.length - 1]),
      say: (s) =>
        s.chain && s.plain
          ? [
              `A language model answered one prompt twice. Each block is one forward pass of the large model. Above, ` +
                `plain decoding: ${count(passes(s.plain), "pass", "passes")}. Below, speculative decoding: ${passes(s.chain)}.`,
              "How can one pass write several tokens, and why is the text still the same? Scroll: the figure moves as you read.",
            ]
          : ["Plain decoding writes one token per forward pass of the model. Speculative decoding writes several."],
    },
    {
      key: "plain",
      title: "One pass, one token",
      part: "text",
      long: true,
      at: (s, x) => on(s.plain, s.plain && s.plain.rounds[step(x, Math.min(24, s.plain.rounds.length))]),
      say: (s) => [
        "To write one token, the model reads all of its weights. To write the next one, it reads them all again." +
          (s.plain && s.plain.targetSize
            ? ` Here that is ${(s.plain.targetSize / 1e6).toFixed(0)} million numbers a token.`
            : ""),
        "Fetching the weights from memory takes most of the time, and the processor waits. That is " +
          "the slow part, and the chance.",
      ],
    },
    {
      key: "guess",
      title: "A cheap draft guesses ahead",
      part: "round",
      at: (s) => on(s.chain, shown(s.chain), { phase: 1 }),
      say: (s) => {
        const l = s.chain,
          r = l && shown(l);
        if (!r)
          return [
            "Something cheap writes a few tokens ahead: a small model, a trained head, or a copy of earlier text.",
          ];
        const small =
          l.draftSize > 0 && l.targetSize > 0
            ? `A second model, ${ratio(l.targetSize / l.draftSize)} times smaller,`
            : "Something cheap, a small model or a copy of earlier text,";
        return [
          `${small} runs ahead. In round ${r.i + 1} it drafts ${count(r.nodes.length, "token")}: ` +
            `${words(
              l,
              r.nodes.map((n) => n.id),
              r.all,
            )}.`,
          "They are only guesses: dotted, not yet checked. The box shows q, the probability that the draft gave its guess.",
        ];
      },
    },
    {
      key: "check",
      title: "One pass checks every guess",
      part: "round",
      at: (s, x) => on(s.chain, shown(s.chain), { phase: x < 0.45 ? 2 : 3 }),
      say: (s) => {
        const l = s.chain,
          r = l && shown(l),
          c = l && l.base && counted(l) ? [P.traceLanes.costs(l.base), P.traceLanes.costs(l)] : null;
        return [
          "The large model reads all guesses at once" +
            (r
              ? `, ${count(r.rows, "token")} in one forward pass. At each place it finds what it would have written there.`
              : "."),
          c && c[0].verify > 0
            ? "The weights are fetched once for all of them, so checking costs little more than writing: " +
              "in this run a pass over " +
              `${Math.round(c[1].rows)} tokens took ${times(c[1].verify / c[0].verify)} as long as a pass over one.`
            : "The weights are fetched once for all of them, so on most machines checking costs little more than writing.",
        ];
      },
    },
    {
      key: "kept",
      title: "What agrees is kept, and one comes free",
      part: "round",
      at: (s) => on(s.chain, shown(s.chain), { node: "tail" }),
      say: (s) => {
        const l = s.chain,
          r = l && shown(l);
        return r && r.why === "bonus"
          ? [
              `All ${r.path.length} guesses are what the large model would have written, so they stay. ` +
                "Its last position has already " +
                `computed what comes next: ${word(l, r.tail.tok)}, the bonus token.`,
              `${count(r.n, "token")} from one pass.`,
            ]
          : [
              "Guesses that agree stay. When all of them do, the last position already holds the next token: the bonus token.",
            ];
      },
    },
    {
      key: "refused",
      title: "A wrong guess cannot get in",
      part: "round",
      at: (s, x) => {
        const r = s.chain && refused(s.chain);
        return on(s.chain, r, x < 0.12 ? { phase: 1 } : x < 0.25 ? { phase: 2 } : { node: rejectedNode(r) });
      },
      say: (s) => {
        const l = s.chain,
          r = l && refused(l),
          t = r && r.raw.trials.find((j) => j.verdict === "rejected");
        return t
          ? [
              `Round ${r.i + 1}. The draft wrote ${word(l, r.all[t.node].tok)}; the large model would ` +
                `write ${word(l, r.tail.tok)}. ` +
                "So the guess is rejected, the correction takes its place, and later guesses are dropped unread.",
              `${count(r.n, "token")} from this pass: never fewer than plain decoding gives.`,
            ]
          : [
              "Where the draft is wrong, the large model\u2019s own token takes its place: never fewer than one token a pass.",
            ];
      },
      link: ["quiz", "Would you have kept it? Take the quiz"],
    },
    {
      key: "flow",
      title: "Easy words come in runs",
      part: "text",
      long: true,
      at: (s, x) => on(s.chain, s.chain && s.chain.rounds[step(x, s.chain.rounds.length)]),
      say: (s) => {
        const l = s.chain,
          a = l && P.traceLanes.levels(l);
        return l
          ? [
              "Round after round. Wide blocks are predictable text; narrow ones are places where the draft did not know.",
              (a && a.alpha !== null
                ? `The large model kept ${a.kept} of the ${a.tried} guesses that it examined. `
                : "") + `On average a pass gave ${tau(l)} tokens, the mean accepted length.`,
            ]
          : ["Predictable text comes several tokens at a time; hard places come one by one."];
      },
      track: "several",
    },
    {
      key: "same",
      title: "The text has not changed",
      part: "text",
      needs: (s) => Boolean(s.chain && s.plain),
      at: (s) => on(s.chain, s.chain.rounds[s.chain.rounds.length - 1]),
      say: (s) => {
        const d = SpecViz.verdict.firstDifference(s.chain.folded, s.plain.folded);
        return d.at === null
          ? [
              `${d.same} of ${d.same} tokens are those that plain decoding wrote. This is no accident: every token was either ` +
                "what the large model would have written, or written by it.",
              "The guesses decide only how fast the text comes, not what it says.",
            ]
          : [`The texts agree for ${d.same} tokens and part there: the board shows the place and says why.`];
      },
    },
    {
      key: "tree",
      title: "Several guesses for one place",
      part: "round",
      needs: (s) => Boolean(s.tree),
      at: (s, x) => {
        const l = s.tree,
          r = pick(l, (t) => t.path.some((id) => id > 0 && t.all[id].parent < 0)) || full(l);
        return on(l, r, { phase: x < 0.12 ? 1 : x < 0.25 ? 2 : 4 });
      },
      say: (s) => {
        const l = s.tree,
          r = pick(l, (t) => t.path.some((id) => id > 0 && t.all[id].parent < 0)) || full(l);
        return [
          `A draft may branch. Here ${count(r.nodes.length, "guess", "guesses")} form a tree, and ` +
            "one pass checks every branch: " +
            "a mask lets each guess see only its own path.",
          `When the first choice is wrong, a sibling may be right. ${l.title} wrote ${tau(l)} tokens a pass on this prompt.`,
        ];
      },
    },
    {
      key: "clock",
      title: "On one clock",
      part: "race",
      long: true,
      needs: (s) => s.lanes.length > 1,
      at: (s, x) => ({ layout: "race", x }),
      say: (s) => {
        const m = s.chain && s.chain.metrics;
        return [
          "Now by the clock. Each method ran alone on the same machine; the strips fill as the engine filled them.",
          s.chain && counted(s.chain) && m.walltime_speedup
            ? `${s.chain.title} wrote ${rate(m.tokens_per_second)} tokens a second, ` +
              `${times(m.walltime_speedup)} plain decoding\u2019s speed. That is less than ` +
              `${tau(s.chain)}, because guessing and checking ` +
              "cost time, too."
            : s.chain && s.chain.doubt
              ? SpecViz.messages.say(s.chain.doubt)
              : "Fewer passes are not yet less time: guessing and checking cost something, too.",
        ];
      },
    },
    {
      key: "pays",
      title: "When it does not pay",
      part: "round",
      at: (s) => {
        const r = s.chain && lost(s.chain);
        return on(s.chain, r, { node: rejectedNode(r) });
      },
      say: (s) => {
        const l = s.chain,
          r = l && lost(l),
          bad = l ? l.rounds.filter((x) => x.nodes.length && !x.path.length).length : 0,
          gap = l && counted(l) ? P.maths.gap(l) : null;
        return [
          r && !r.path.length
            ? `Round ${r.i + 1}: the first guess fails. One token, for the price of a draft and a pass. ` +
              `${bad} of ${l.rounds.length} rounds went like this.`
            : "When the first guess fails, a round gives one token for the price of a draft and a pass.",
          (gap
            ? `Here a round gives ${gap.tau.toFixed(2)} tokens and costs ${(gap.c * gap.gamma + gap.v).toFixed(2)} plain passes. `
            : "") +
            "It pays while the first number is larger. A weak draft, unpredictable text or a server " +
            "with many users turn it around.",
        ];
      },
      track: "pays",
    },
    {
      key: "odds",
      title: "And when tokens are drawn?",
      part: "odds",
      sampled: true,
      needs: (s) => Boolean(drawnOf(s)),
      at: (s) => {
        const l = drawnOf(s),
          r = draws(l);
        return on(l, r, { node: trialOf(r).node, tab: "why" });
      },
      say: (s) => {
        const l = drawnOf(s),
          j = trialOf(draws(l));
        return [
          `At temperature ${l.temperature} the model draws its tokens. A guess with draft ` +
            "probability q and target probability p is " +
            `kept with probability min(1, p/q): here ${f3(j.a)}. The random number was ${f3(j.u)}, so it is ` +
            `${j.verdict === "rejected" ? "rejected" : "kept"}.`,
          "A rejected guess is replaced by a draw from what the draft gave too little. Together, " +
            "every token comes exactly as often as " +
            "the large model alone would write it.",
        ];
      },
      track: "sampling",
    },
  ];

  /* What a scene may speak of, from the lanes of a greedy recording and of a sampled one (or null). */
  const story = (lanes, drawn) => ({ lanes, drawn, plain: plainOf(lanes), chain: chainOf(lanes), tree: treeOf(lanes) });

  P.story = { scenes, story };
})();
