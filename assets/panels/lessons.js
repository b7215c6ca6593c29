/* Three lesson tracks that drive the board. A step says something true of the trace that lies there: it looks for a round
   that shows it, moves the board to it, and fills its numbers in. A step that finds no such round says so. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { times, count } = SpecViz.dom;
  const { sum } = P.kit;

  /* Looking in a trace. Each returns {lane, round, node, phase} or null. */
  const drafting = (ls) => ls.filter((l) => !l.baseline && l.rounds.some((r) => r.nodes.length));
  const chainOf = (ls) =>
    drafting(ls).find((l) => l.rounds.every((r) => r.nodes.every((n) => n.parent === n.id - 1 || n.parent < 0))) ||
    drafting(ls)[0] ||
    null;
  const treeOf = (ls) =>
    drafting(ls).find((l) => l.rounds.some((r) => r.nodes.filter((n) => n.parent < 0).length > 1)) || null;
  const plainOf = (ls) => ls.find((l) => l.baseline) || null;
  const pick = (l, ok) => {
    const list = l ? l.rounds.filter(ok) : [];
    return list[Math.floor(list.length / 3)] || null;
  };
  const at = (l, r, more) => (l && r ? { lane: l.id, round: r.i, ...more } : null);
  const full = (l) =>
    pick(l, (r) => r.why === "bonus" && r.path.length >= Math.min(3, r.depth) && r.path.length > 0) ||
    pick(l, (r) => r.path.length > 0);
  const refused = (l) =>
    pick(l, (r) => r.why === "correction" && r.path.length > 0) || pick(l, (r) => r.why === "correction");
  const rejectedNode = (r) => {
    const t = r && r.raw.trials.find((j) => j.verdict === "rejected");
    return t ? t.node : "tail";
  };
  const tau = (l) => (l.tokens / l.rounds.length).toFixed(2);
  const ms = (s) => (s * 1e3).toFixed(1) + " ms";
  const word = (l, tok) => "\u201c" + SpecViz.fold.label(l.folded, tok, 16) + "\u201d";

  const several = [
    {
      title: "One pass, one token",
      layout: "watch",
      find: (ls) => {
        const l = plainOf(ls);
        return at(l, l && l.rounds[Math.min(3, l.rounds.length - 1)]);
      },
      say: (ls) => {
        const l = plainOf(ls);
        return l
          ? `Plain decoding. The large model reads all of its weights, writes one token, and begins again: ${l.rounds.length} passes for ${l.tokens} tokens. On the board, every column of the scrubber is one block high.`
          : "Plain decoding writes one token per pass: the large model reads all of its weights, writes one token, and begins again. This trace has no plain lane to show it.";
      },
    },
    {
      title: "Reading is the slow part",
      layout: "watch",
      find: (ls) => {
        const l = chainOf(ls);
        return at(l, full(l), { phase: 1 });
      },
      say: (ls) => {
        const l = chainOf(ls),
          c = l && l.base ? [P.read.costs(l.base), P.read.costs(l)] : null;
        const gist =
          "A pass spends most of its time fetching weights from memory. What it computes with them, for one token or for five, is the smaller part.";
        return c && c[0].verify > 0
          ? `${gist} In this trace a pass over ${Math.round(c[1].rows)} rows took ${times(c[1].verify / c[0].verify)} as long as a pass over one (${ms(c[1].verify)} and ${ms(c[0].verify)}).`
          : gist;
      },
    },
    {
      title: "Somebody guesses",
      layout: "watch",
      find: (ls) => {
        const l = chainOf(ls);
        return at(l, full(l), { phase: 1 });
      },
      say: (ls) => {
        const l = chainOf(ls),
          r = full(l);
        return r
          ? `So something cheap writes ahead: a small model, or a copy of earlier text. Here it guesses ${count(r.nodes.length, "token")}. The dotted frames say: drafted, not yet checked.`
          : "So something cheap writes ahead: a small model, or a copy of earlier text.";
      },
    },
    {
      title: "One pass checks all of them",
      layout: "watch",
      find: (ls) => {
        const l = chainOf(ls);
        return at(l, full(l), { phase: 2 });
      },
      say: (ls) => {
        const l = chainOf(ls),
          r = full(l);
        return `The large model reads the whole draft at once${r ? `: ${count(r.rows, "row")}, the last token and the ${count(r.nodes.length, "guess", "guesses")}` : ""}. At every place it learns what it would have written there itself.`;
      },
    },
    {
      title: "Kept, and one more for free",
      layout: "watch",
      find: (ls) => {
        const l = chainOf(ls);
        return at(l, full(l), { phase: 4, node: "tail" });
      },
      say: (ls) => {
        const l = chainOf(ls),
          r = full(l);
        return r && r.why === "bonus"
          ? `All ${r.path.length} guesses agree, so they stay. And the last row of the pass has already said what comes next, ${word(l, r.tail.tok)}: that is the bonus token. ${count(r.n, "token")} from one pass.`
          : "Guesses that agree stay. When all do, the last row of the pass has already said what comes next: the bonus token.";
      },
    },
    {
      title: "A wrong guess costs little",
      layout: "watch",
      find: (ls) => {
        const l = chainOf(ls),
          r = refused(l);
        return at(l, r, { phase: 4, node: rejectedNode(r) });
      },
      say: (ls) => {
        const l = chainOf(ls),
          r = refused(l);
        return r
          ? `Here the large model wanted something else: it refuses the guess and writes ${word(l, r.tail.tok)} itself, the correction. What was drafted behind it is dropped unseen. Still ${count(r.n, "token")} from the pass, never fewer than one.`
          : "Nothing was refused in this trace. Had it been, the large model would have written its own token in that place: never fewer than one token a pass.";
      },
    },
    {
      title: "Two guesses for one place",
      layout: "watch",
      find: (ls) => {
        const l = treeOf(ls);
        return at(l, pick(l, (r) => r.path.some((id) => id > 0 && r.all[id].parent < 0)) || full(l), { phase: 4 });
      },
      say: (ls) => {
        const l = treeOf(ls);
        return l
          ? `A tree of guesses: several candidates at a place, and the pass reads them all. When the first is wrong, a sibling may be right. ${l.title} kept ${tau(l)} tokens per pass here.`
          : "Some methods draft a tree: several candidates at a place, so that a sibling may be right when the first is wrong. This trace holds no tree; the Race tab can make one.";
      },
    },
    {
      title: "Now let it run",
      layout: "watch",
      play: true,
      find: (ls) => {
        const l = chainOf(ls);
        return at(l, l && l.rounds[0], { phase: 1 });
      },
      say: (ls) => {
        const l = chainOf(ls);
        return l
          ? `${l.rounds.length} passes instead of ${l.tokens}: ${tau(l)} tokens per pass. Watch the height of the columns: easy text comes in runs, hard places one at a time.`
          : "";
      },
    },
  ];

  const dice = [
    {
      title: "What \u201cthe same\u201d means",
      find: (ls) => {
        const l = drafting(ls)[0];
        return at(l, l && l.rounds[0], { phase: 4 });
      },
      say: () =>
        "With temperature 0 the large model has one answer, and an exact method must write exactly that. With chance in it there is no single answer: then every token must come with the odds the large model gives it.",
    },
    {
      title: "Greedy: agree or be replaced",
      tab: "why",
      find: (ls) => {
        const l = drafting(ls).find((x) => !(x.temperature > 0)) || null;
        const r = full(l);
        return at(l, r, { phase: 4, node: r ? r.path[0] : null });
      },
      say: (ls) =>
        drafting(ls).some((l) => !(l.temperature > 0))
          ? "Temperature 0: a guess stays if it is the large model's first choice. Select any token and the dice card shows why it stayed."
          : "This trace was sampled. At temperature 0 a guess stays if it is the large model's first choice, and nothing else counts.",
    },
    {
      title: "The refusal brings its own token",
      tab: "why",
      find: (ls) => {
        const l = drafting(ls).find(refused) || null,
          r = refused(l);
        return at(l, r, { phase: 4, node: rejectedNode(r) });
      },
      say: (ls) => {
        const l = drafting(ls).find(refused),
          r = refused(l);
        return l
          ? `Refused at round ${r.i + 1}. The same pass that refused the guess holds the large model's own choice, ${word(l, r.tail.tok)}. So the text is what plain decoding would have written.`
          : "The pass that refuses a guess holds the large model's own choice for that place. So the text is what plain decoding would have written.";
      },
    },
    {
      title: "With chance: weigh, then draw",
      tab: "why",
      widget: "dice",
      find: (ls) => {
        const l = drafting(ls).find((x) => x.temperature > 0),
          r = l && pick(l, (x) => x.raw.trials.some((j) => j.a !== null && j.a > 0.05 && j.a < 0.95));
        return l && r
          ? at(l, r, { phase: 4, node: r.raw.trials.find((j) => j.a !== null && j.a > 0.05 && j.a < 0.95).node })
          : null;
      },
      say: (ls) =>
        "The draft says a token with probability q, the large model would say it with p. It is kept with probability min(1, p/q): always if the draft was modest, less often the more it overstated." +
        (drafting(ls).some((l) => l.temperature > 0)
          ? " Behind this card, such a token. Roll it:"
          : " A sampled recording from the Traces tab shows it on real tokens. Roll it:"),
    },
    {
      title: "What the draft took too often is given back",
      widget: "dice",
      find: () => null,
      quiet: true,
      say: () =>
        "After a refusal the new token is drawn from what the draft left short: max(0, p \u2212 q), scaled to one. Together the two steps give exactly p, whatever the draft thinks. Forget that second step and the dots no longer reach the marks: switch it off and roll.",
    },
    {
      title: "Nothing is taken on trust",
      find: (ls) => {
        const l = drafting(ls)[0];
        return at(l, l && l.rounds[l.rounds.length - 1], { phase: 4 });
      },
      say: (ls) => {
        const all = drafting(ls),
          n = sum(all.map((l) => l.metrics.checked)),
          ok = sum(all.map((l) => l.metrics.agree));
        return `Every verdict is stored with its acceptance probability and its draw, and the board recomputes them: ${ok} of ${n} agree here. The Lab goes further: it counts hundreds of samples against the law, and breaks the method on purpose.`;
      },
    },
    {
      title: "Where it is not the same",
      find: () => null,
      quiet: true,
      say: () =>
        "Methods marked \u201cmay change the output\u201d keep guesses that are merely good enough. And two ways of adding the same numbers can differ in the last bit: where two tokens are nearly tied, that bit decides. The certificate names such a near-tie instead of hiding it.",
    },
  ];

  const pays = [
    {
      title: "Two sides of one sum",
      find: (ls) => {
        const l = chainOf(ls);
        return at(l, l && l.rounds[0], { phase: 4 });
      },
      say: (ls) => {
        const l = chainOf(ls),
          g = l && P.maths.gap(l);
        return g
          ? `A round gives ${g.tau.toFixed(2)} tokens here and costs ${(g.c * g.gamma + g.v).toFixed(2)} plain passes. The one over the other is the gain: ${times(g.tau / (g.c * g.gamma + g.v))} before overhead, ${times(g.measured)} by the clock.`
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
          a = l && P.read.levels(l);
        return a && a.alpha !== null
          ? `At ${a.kept} of ${a.tried} places tried here: \u03b1 = ${a.alpha.toFixed(2)}. If each guess were right with that chance by itself, a draft of five would survive whole ${Math.round(100 * a.alpha ** 5)} % of the time. Longer drafts reach further into doubt.`
          : "Acceptance, \u03b1, is the share of guesses that stay of those that were looked at. Longer drafts reach further into doubt.";
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
          g = l && P.maths.gap(l);
        return g
          ? `A draft step costs ${g.c.toFixed(2)} of a plain pass here. A draft of ${g.gamma.toFixed(1)} tokens therefore costs ${(g.c * g.gamma).toFixed(2)} passes, and is paid whether or not it is kept.`
          : "A draft step is paid whether or not it is kept. Ten steps of a draft ten times cheaper cost as much as one more pass.";
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
          ? "The first guess fails: one token, at more than the price of a plain step. Such rounds are why a method can be slower than plain decoding. Names, numbers and turns of a story are where they gather."
          : "In this trace no first guess failed. When one does, the round yields one token at more than the price of a plain step.",
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
        return best && ls.length > 1
          ? `All lanes on one clock; each one ran only while it decoded itself. ${best.title} ends first here, at ${best.metrics.tokens_per_second.toFixed(0)} tokens per second. More tokens per pass do not always win: a tree keeps more and costs more.`
          : "In a race all lanes share one clock, each recorded alone. This trace holds a single lane, so there is nobody to race against.";
      },
    },
    {
      title: "The text decides too",
      find: () => null,
      quiet: true,
      say: () =>
        "Rewriting, code and answers that quote the question are full of copies: a lookup method finds them for nearly nothing. Free prose at a high temperature is hard for every draft. Try the examples above the board: \u201cCopy and edit\u201d shows it at once.",
    },
    {
      title: "And so does the machine",
      find: () => null,
      quiet: true,
      link: ["lab", "hardware", "Open the Lab"],
      say: () =>
        "It pays while a pass waits for memory. Serve many answers at a time and the arithmetic is busy already: then every refused guess takes time from somebody else's token. The Lab's \u201cAnother machine\u201d shows where that happens.",
    },
  ];

  P.lessons = {
    tracks: [
      {
        key: "several",
        title: "Why several tokens at once",
        about: "From one token a pass to a draft, a check and a bonus.",
        steps: several,
      },
      {
        key: "dice",
        title: "Why the text stays the same",
        about: "The dice: how a guess is kept or refused without changing the odds.",
        steps: dice,
      },
      {
        key: "pays",
        title: "When it pays",
        about: "Acceptance, the price of a guess, the text and the machine.",
        steps: pays,
      },
    ],
    find: { drafting, chainOf, treeOf, plainOf, full, refused, rejectedNode },
  };
})();
