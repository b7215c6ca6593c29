/* A lesson: from one token a pass to a draft, a check and a bonus. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { times, count } = SpecViz.dom;

  const { chainOf, treeOf, plainOf, pick, at, full, refused, rejectedNode, tau, ms, word } = P.finds;

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
          ? "Plain decoding. The large model reads all of its weights, writes one token, and begins again: " +
              `${l.metrics.passes} passes for ${l.tokens} tokens. On the board, every block of the strip is one token wide.`
          : "Plain decoding writes one token per pass: the large model reads all of its weights, writes one " +
              "token, and begins again. This trace has no plain lane to show it.";
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
          c = l && l.base ? [P.traceLanes.costs(l.base), P.traceLanes.costs(l)] : null;
        const gist =
          "A pass spends most of its time fetching weights from memory. What it computes with them, for one " +
          "token or for five, is the smaller part.";
        return c && c[0].verify > 0
          ? `${gist} In this trace a pass over ${Math.round(c[1].rows)} rows took ` +
              `${times(c[1].verify / c[0].verify)} as long as a pass over one (${ms(c[1].verify)} and ` +
              `${ms(c[0].verify)}).`
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
          ? "So something cheap writes ahead: a small model, or a copy of earlier text. Here it guesses " +
              `${count(r.nodes.length, "token")}. The dotted frames say: drafted, not yet checked.`
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
        return (
          "The large model reads the whole draft at " +
          `once${r ? `: ${count(r.rows, "row")}, the last token and the ${count(r.nodes.length, "guess", "guesses")}` : ""}. ` +
          "At every place it learns what it would have written there itself."
        );
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
          ? `All ${r.path.length} guesses agree, so they stay. And the last row of the pass has already said ` +
              `what comes next, ${word(l, r.tail.tok)}: that is the bonus token. ${count(r.n, "token")} from one ` +
              "pass."
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
          ? "Here the large model wanted something else: it refuses the guess and writes " +
              `${word(l, r.tail.tok)} itself, the correction. What was drafted behind it is dropped unseen. ` +
              `Still ${count(r.n, "token")} from the pass, never fewer than one.`
          : "Nothing was rejected in this trace. Had it been, the large model would have written its own token " +
              "in that place: never fewer than one token a pass.";
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
          ? "A tree of guesses: several candidates at a place, and the pass reads them all. When the first is " +
              `wrong, a sibling may be right. ${l.title} kept ${tau(l)} tokens per pass here.`
          : "Some methods draft a tree: several candidates at a place, so that a sibling may be right when the " +
              "first is wrong. This trace holds no tree; the Race tab can make one.";
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
          ? `${l.metrics.passes} passes instead of ${l.tokens}: ${tau(l)} tokens per pass. Watch the width of ` +
              "the blocks: easy text comes in runs, hard places one at a time."
          : "";
      },
    },
  ];

  (P.tracks = P.tracks || {}).several = several;
})();
