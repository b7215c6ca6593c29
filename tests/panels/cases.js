/* The panels' sums, without a page: each case takes (SV, {race: records of plain decoding, a chain and a tree}). */
(() => {
  "use strict";
  const { same, ok } = globalThis.SPECVIZ_TOOLS;
  const P = globalThis.SpecVizPanels;
  const near = (a, b, what) => ok(Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(b)), what + ": " + a + " is not " + b);

  Object.assign(globalThis.SPECVIZ_CASES, {
    "words: what a person reads is cut and named"() {
      same(P.words.say("a\u202eb\u0007", 20).includes("\u202e"), false, "an override is named");
      same([P.words.say(null), P.words.say("abc", 2)], ["", "ab"], "nothing, and too much");
      same([P.words.median([3, 1, 2]), P.words.median([1, 2, 3, 4]), P.words.median([])], [2, 2.5, null], "median");
      same(
        [P.words.mean([1, 2]), P.words.mean([]), P.words.clamp(9, 0, 5), P.words.finite(NaN)],
        [1.5, null, 5, false],
        "sums",
      );
    },
    "the fastest setting of a sweep is named with those within its noise"(SV) {
      const row = (value, tokens_per_second, low, high) => ({ value, tokens_per_second, low, high });
      const found = P.sweep.withinNoise([row(2, 90, 88, 92), row(3, 98, 95, 101), row(4, 100, 96, 103), row(5, 97, 94, 99)]);
      same(found.map((r) => r.value), [4, 3, 5], "fastest first; 2 is below");
      same(P.sweep.spanOf(found), SV.messages.say("sweep.noise", { low: "3", high: "5" }), "span");
      same([P.sweep.spanOf(found.slice(0, 1)), P.sweep.spanOf([])], ["", ""], "one setting, none");
    },
    "a longer draft is faster, perhaps faster or slower"() {
      const at = (gamma, low, high) => ({ gamma, low, high }),
        of = (...longer) => P.maths.longerDraft([at(3, 1.9, 2), at(4, 1.7, 1.7), ...longer], 4),
        found = (...longer) => [of(...longer).kind, of(...longer).best.gamma, of(...longer).last.gamma];
      same(found(at(5, 1.8, 1.9), at(6, 1.5, 2)), ["yes", 5, 6], "surely");
      same(found(at(5, 1.5, 1.8), at(6, 1.6, 1.7)), ["perhaps", 5, 6], "perhaps");
      same(found(at(5, 1.4, 1.5), at(6, 1.2, 1.6)), ["no", 6, 6], "slower");
      same([of(), P.maths.longerDraft([at(5, 1, 1)], 4)], [null, null], "nothing longer, nothing recorded");
    },
    "the formula is the sum of its chances"() {
      for (const [a, g] of [
        [0.3, 1],
        [0.8, 5],
        [0, 4],
        [1, 4],
      ]) {
        let want = 0;
        for (let i = 0; i <= g; i++) want += a ** i;
        near(P.maths.tokensPerRound(a, g), want, "alpha " + a);
        near(P.maths.predicted(a, g, 0.1), want / (0.1 * g + 1), "speed-up " + a);
      }
    },
    "from the formula to the clock, the steps leave nothing over"(SV, fx) {
      const lanes = P.traceLanes.lanes(fx.race).filter((l) => !l.baseline);
      ok(lanes.length > 0, "a drafting lane");
      for (const l of lanes) {
        const g = P.maths.gap(l);
        near(
          g.steps.reduce((s, x) => s + x.by, g.formula),
          g.measured,
          l.title,
        );
      }
    },
    "a cost curve never falls, and its one row is the plain pass"(SV, fx) {
      const c = P.maths.curveOf(P.traceLanes.lanes(fx.race));
      for (let k = 1; k < 40; k++) ok(c.at(k + 1) >= c.at(k) - 1e-15, "rows " + k);
      near(c.at(1), c.one, "one");
    },
    "a wider draft never needs more rounds, a dearer one is never faster"(SV, fx) {
      const l = P.traceLanes.lanes(fx.race).find((x) => !x.baseline),
        c = P.maths.curveOf([l, l.base]),
        ask = (set) => P.maths.whatIf(l, set, c.at).low;
      for (let g = 1; g < 5; g++) ok(ask({ gamma: g + 1 }).rounds <= ask({ gamma: g }).rounds, "gamma " + g);
      ok(ask({ gamma: 4, price: 3 }).seconds > ask({ gamma: 4 }).seconds, "price");
    },
    "cells of a test hold every sample, the rare ones together"() {
      const out = P.maths.cells([50, 30, 3, 1], [0.6, 0.35, 0.03, 0.02]);
      same(
        out.map((c) => [c.i, c.count]),
        [
          [0, 50],
          [1, 30],
          [-1, 4],
        ],
        "cells",
      );
      same(P.maths.cells([0, 9], [1, 0]).at(-1).add, null, "a token of probability 0");
    },
    "a table as CSV is quoted, and no cell is a formula"() {
      same(
        P.kit.csv([{ name: "a" }, "b"], [["x,y", 'say "hi"'], ["=1+1", -2], ["-3.5", null]]),
        'a,b\r\n"x,y","say ""hi"""\r\n\'=1+1,-2\r\n-3.5,',
        "csv",
      );
    },
    "tokens fall into one kind each"() {
      const kinds = ["\n", " 42", ",", " word", "ing"].map(P.predictability.kindOf);
      same(kinds, ["newline", "digit", "mark", "start", "inside"], "kinds");
    },
    "how easy a place was agrees with what the round kept"(SV, fx) {
      for (const l of P.traceLanes.lanes(fx.race).filter((x) => !x.baseline)) {
        const list = P.predictability.ease(l);
        same(list.length, l.tokens, "a value a token");
        same(list.filter((e) => e.hit === 1).length >= P.words.sum(l.rounds.map((r) => r.path.length)), true, "kept");
        ok(
          list.every((e) => e.a === null || (e.a >= 0 && e.a <= 1)),
          "a chance",
        );
      }
    },
    "lessons look for rounds that are what they say"(SV, fx) {
      const F = P.finds,
        lanes = P.traceLanes.lanes(fx.race),
        all = F.drafting(lanes);
      same([F.plainOf(lanes).baseline, all.some((l) => l.baseline)], [true, false], "plain");
      for (const l of all) {
        const bad = F.refused(l);
        if (bad) same(bad.why, "correction", "refused");
        if (bad) ok(bad.raw.judges.get(F.rejectedNode(bad)).verdict === "rejected", "the refused node");
        const good = F.full(l);
        if (good) ok(good.path.length > 0, "full");
      }
      same([F.chainOf([]), F.treeOf([]), F.plainOf([])], [null, null, null], "nothing in nothing");
      for (const track of P.lessons.tracks)
        for (const step of track.steps)
          ok(/^[\dA-Z][^]*[.!?]( |$)/.test(step.say(lanes)), track.key + ": " + step.title);
    },
  });
})();
