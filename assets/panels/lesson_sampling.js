/* A lesson: how a guess is kept or refused without changing the odds. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});

  const { sum } = P.kit;
  const { drafting, pick, at, full, refused, rejectedNode, word } = P.finds;

  const messages = SpecViz.messages;
  /* What may be said of a lane's text, as the identifier of a message. */
  const sameId = (l) =>
    l.exactness && l.exactness !== "exact"
      ? "lesson.same.loose"
      : l.temperature > 0
        ? "lesson.same.sampled"
        : "lesson.same.exact";
  const isSampled = (ls) => drafting(ls).some((l) => l.temperature > 0);

  const sampling = [
    {
      title: "What \u201cthe same\u201d means",
      find: (ls) => {
        const l = drafting(ls)[0];
        return at(l, l && l.rounds[0], { phase: 4 });
      },
      say: () =>
        "With temperature 0 the large model has one answer, and an exact method must write exactly that. " +
        "With chance in it there is no single answer: then every token must come with the probability the large " +
        "model gives it.",
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
          ? "Temperature 0: a guess stays if it is the large model's first choice. Select any token, and " +
            "Probabilities shows why it stayed."
          : "This trace was sampled. At temperature 0 a guess stays if it is the large model's first choice, " +
            "and nothing else counts.",
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
          ? `Rejected at round ${r.i + 1}. The same pass that rejected the guess holds the large model's own ` +
              `choice, ${word(l, r.tail.tok)}. ${messages.say(sameId(l))}`
          : "The pass that refuses a guess holds the large model's own choice for that place.";
      },
    },
    {
      title: "With chance: weigh, then draw",
      tab: "why",
      sampled: true /* where the board holds a greedy trace, a shipped recording that was sampled is opened */,
      widget: "sampling",
      find: (ls) => {
        const l = drafting(ls).find((x) => x.temperature > 0),
          r = l && pick(l, (x) => x.raw.trials.some((j) => j.a !== null && j.a > 0.05 && j.a < 0.95));
        return l && r
          ? at(l, r, { phase: 4, node: r.raw.trials.find((j) => j.a !== null && j.a > 0.05 && j.a < 0.95).node })
          : null;
      },
      say: (ls) =>
        "The draft says a token with probability q, the large model would say it with p. It is kept with " +
        "probability min(1, p/q): always if the draft was modest, less often the more it overstated." +
        (isSampled(ls)
          ? " On the board, such a token. Try it:"
          : " A sampled recording in the Traces tab shows it on real tokens. Try it:"),
      ready: isSampled,
    },
    {
      title: "What the draft took too often is given back",
      widget: "sampling",
      find: () => null,
      quiet: true,
      say: () =>
        "After a refusal the new token is drawn from what the draft left short: max(0, p \u2212 q), scaled " +
        "to one. Together the two steps give exactly p, whatever the draft thinks. Forget that second step " +
        "and the bars no longer reach the marks: switch it off and try.",
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
        return (
          "Every verdict is stored with its acceptance probability and its draw, and " +
          messages.say(n ? "lesson.checked" : "lesson.unchecked", { ok, n }) +
          " The Lab goes further: it counts hundreds of samples against the distribution, and breaks the method on purpose."
        );
      },
    },
    {
      title: "Where it is not the same",
      find: () => null,
      quiet: true,
      say: () =>
        "Methods marked \u201cmay change the output\u201d keep guesses that are merely good enough. And two " +
        "ways of adding the same numbers can differ in the last bit: where two tokens are nearly tied, that " +
        "bit decides. The certificate names such a near-tie instead of hiding it.",
    },
  ];

  (P.tracks = P.tracks || {}).sampling = sampling;
  P.sameId = sameId;
})();
