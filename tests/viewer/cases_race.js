/* What a race comes to: who won, where two texts part, and two distributions side by side. */
(() => {
  "use strict";
  const { same, ok } = globalThis.SPECVIZ_TOOLS;
  /* An ended lane with one run of its own and those given: 10 tokens in `seconds` each. */
  const lane = (id, title, seconds, more = {}) => {
    const sum = { tokens: 10, seconds: seconds[0], rounds: 1, passes: 1, pos: [], parts: [0, 0, 0, 0, 0] };
    const repeats = seconds.slice(1).map((s) => ({ tokens: 10, seconds: s }));
    return {
      id,
      header: { method: { key: title, title } },
      committed: 1,
      rounds: [{ i: 0, sum, commit: { t: seconds[0] }, lens: [], timing: {} }],
      ends: [seconds[0]],
      tokens: [],
      checks: [],
      done: { totals: { tokens: 10, seconds: seconds[0], repeats } },
      ...more,
    };
  };
  const text = (toks) => toks.map((tok) => ({ tok }));

  Object.assign(globalThis.SPECVIZ_CASES, {
    "a race of single runs has a fastest lane and no winner"(SV) {
      const v = SV.verdict.verdict([lane(0, "Slow", [2]), lane(1, "Fast", [1])]);
      same([v.winner.id, v.second.id, v.sure], [1, 0, false], "order");
      same(
        v.sentence,
        "Fast was fastest: 10.0 against 5.0 tokens per second of Slow. One run each: repeat the run to see whether it holds.",
        "sentence",
      );
      const close = SV.verdict.verdict([lane(0, "Slow", [1.02]), lane(1, "Fast", [1])]);
      ok(/about equally fast/.test(close.sentence) && /2 % may be noise/.test(close.sentence), close.sentence);
    },
    "several prompts at once: headline, winner and order are of all prompts"(SV) {
      const several = (id, title, seconds, written, time) => {
        const made = lane(id, title, [seconds]);
        made.rounds[0].lens = [{ kind: "class", data: { prompts: ["a", "b", "c"], written, seconds: time } }];
        Object.assign(made.rounds[0].sum, {
          tokens: 10,
          passes: 4,
          accepted: 6,
          tried: 8,
          drafted: 8,
          parts: [0, 0, 0, 0, 0],
        });
        return made;
      };
      const plain = several(0, "autoregressive", 1, [10, 10, 10], 2),
        fast = several(1, "Fast", 2, [10, 12, 14], 1.2); /* slower on its own prompt, faster over all */
      same([SV.batch.totals(fast).tokens, SV.batch.totals(fast).rate], [36, 36 / 1.2], "totals");
      same(
        SV.batch.ranked([plain, fast]).map((x) => x.lane.id),
        [1, 0],
        "order",
      );
      same(SV.verdict.verdict([plain, fast]).winner.id, 1, "the winner is of all prompts");
      const said = SV.headline.say(fast, plain).text;
      ok(
        ["3 ", "36 tokens", "30.0", "15.0", "2.00"].every((x) => said.includes(x)),
        said,
      );
      same(SV.verdict.verdict([plain, several(1, "Fast", 2, [10, 12, 14], 0.2)]).winner, null, "12 times by 2.5 tokens a pass");
      const busy = several(2, "Fast", 2, [10, 12, 14], 1.2);
      busy.checks = [{ kind: "busy", detail: {} }];
      ok(!SV.headline.say(busy, plain).text.includes("30.0"), "no speed of a busy machine");
      ok(!SV.headline.say(lane(3, "Fast", [1]), null).text.includes("at once"), "one prompt alone");
    },
    "a run that was no faster says what its passes and its guesses cost"(SV) {
      const timed = (id, title, seconds, passes, parts) => {
        const made = lane(id, title, [seconds]);
        Object.assign(made.rounds[0].sum, { tokens: 10, passes, parts });
        return made;
      };
      const plain = timed(0, "autoregressive", 1, 10, [0, 1e9, 0, 0, 0]),
        slow = timed(1, "Slow", 1.2, 8, [6e8, 12e8, 0, 0, 0]),
        said = SV.headline.reason(slow, plain);
      same(
        said,
        SV.messages.say("headline.reason", { times: "1.5", share: "33" }),
        "0.15 s a pass beside 0.1, a third of the time for guesses",
      );
      same(SV.headline.reason(timed(2, "Fast", 0.5, 8, [1e8, 4e8, 0, 0, 0]), plain), "", "a faster one needs none");
      same(SV.headline.reason(timed(3, "Few", 1.2, 7, [6e8, 6e8, 0, 0, 0]), plain), "", "nor one of few passes: that is chance");
      same(SV.headline.reason(plain, plain), "", "nor plain decoding");
      slow.checks = [{ kind: "busy", detail: {} }];
      same(SV.headline.reason(slow, plain), "", "nor a busy machine");
    },
    "sampled lanes are other texts: no pass is counted against plain decoding"(SV) {
      const drawn = (id, title, seconds, count) => {
        const made = lane(id, title, [seconds]);
        made.header.sampling = { temperature: 1 };
        Object.assign(made.rounds[0].sum, { tokens: count, passes: 53, accepted: 30, tried: 60, drafted: 60 });
        made.done.totals.tokens = count;
        made.done.finish = "stop";
        made.tokens = text(Array.from({ length: count }, (_, i) => i));
        return made;
      };
      const said = SV.headline.say(drawn(1, "Fast", 1, 83), drawn(0, "autoregressive", 3, 95)).text;
      ok(said.includes("83 ") && said.includes("53 ") && !/95|instead/.test(said), said);
    },
    "what a small model wrote by itself is not counted as given by passes of the large one"(SV) {
      const made = lane(1, "CoDe", [1]);
      made.header.sampling = { temperature: 1 };
      made.header.method.exactness = "approximate";
      made.rounds.push({ ...made.rounds[0], i: 1, why: "small" });
      Object.assign(made, {
        committed: 2,
        tokens: text([1, 2, 3, 4, 5]).map((t, i) => ({ ...t, round: i < 2 ? 0 : 1 })),
      });
      made.done.totals.tokens = 5;
      made.rounds.forEach((r) => (r.sum = { ...r.sum, tokens: 5 }));
      const said = SV.headline.say(made, lane(0, "autoregressive", [2])).text;
      ok(/5 tokens: 2 by .* 3 by /.test(said) && !said.includes("tokens a pass"), said);
    },
    "a winner is named only where the spreads lie apart"(SV) {
      const apart = SV.verdict.verdict([lane(0, "Slow", [2, 2.1, 1.9]), lane(1, "Fast", [1, 1.1, 0.9])]);
      ok(apart.sure && apart.sentence.startsWith("Fast won, 100 % ahead of Slow: "), apart.sentence);
      ok(apart.sentence.includes("in 3 runs each"), apart.sentence);
      const mixed = SV.verdict.verdict([lane(0, "Slow", [2, 0.95, 2]), lane(1, "Fast", [1, 1.1, 0.9])]);
      ok(!mixed.sure && mixed.sentence.startsWith("No winner: "), mixed.sentence);
    },
    "with repeats the headline and the table are the medians of the same pairs"(SV) {
      /* The second pass was slow for both, and the third of the baseline is missing: two pairs are left. */
      const plain = lane(0, "Plain", [2, 4]),
        fast = lane(1, "Fast", [1, 2, 9]),
        runs = SV.metrics.common([plain, fast]),
        m = SV.metrics.of(fast, 1, plain, runs),
        base = SV.metrics.of(plain, 1, plain, runs),
        v = SV.verdict.verdict([plain, fast]);
      same([runs, m.walltime_speedup, m.spread.runs], [[0, 1], 2, 2], "pairs");
      ok(m.tokens_per_second >= m.spread.low && m.tokens_per_second <= m.spread.high, "inside its own spread");
      ok(v.sure && !v.level && v.sentence.includes("100 % ahead"), v.sentence);
      for (const x of [m, base]) ok(v.sentence.includes(x.tokens_per_second.toFixed(1)), v.sentence);
      const noisy = [lane(0, "Plain", [1, 1, 0.2]), lane(1, "Fast", [0.3, 1.2, 0.3])],
        none = SV.verdict.verdict(noisy);
      ok(none.level && !none.sure && /noise/.test(none.sentence), "nothing is bold where nothing won");
    },
    "seconds and speed of repeated runs go together, and the headline is of the table's pairs"(SV) {
      /* The first run of all is the odd one out; a third lane has two runs only, so that two of each are pairs. */
      const heads = (list) =>
          list.map(
            (l) => ((l.header.sampling = { temperature: 0 }), (l.tokens = text([1, 2])), (l.done.finish = "length"), l),
          ),
        [plain, fast, cut] = heads([
          lane(0, "autoregressive", [8, 4, 100]),
          lane(1, "Fast", [4, 1, 1]),
          lane(2, "Cut", [3, 3]),
        ]),
        runs = SV.metrics.common([plain, fast, cut]),
        m = SV.metrics.of(fast, 1, plain, runs);
      ok(Math.abs(m.seconds * m.tokens_per_second - m.tokens) < 1e-9, "seconds are those of the speed beside them");
      const said = SV.headline.say(fast, plain, runs).text;
      ok(said.endsWith(`${m.walltime_speedup.toFixed(1)} times as fast in the median of 2 runs, same text.`), said);
      const [slow, near] = heads([lane(0, "autoregressive", [1, 1, 0.2]), lane(1, "Fast", [0.3, 1.2, 0.3])]),
        none = SV.headline.say(near, slow, [0, 1, 2]).text;
      ok(none.endsWith("same text, but no clear difference in speed in 3 runs."), none);
    },
    "a lane that was stopped agrees as far as it wrote"(SV) {
      const base = lane(0, "plain", [1], { tokens: text([1, 2, 3]) }),
        done = (finish) => ({ done: { finish, totals: { tokens: 2, seconds: 1 } } }),
        stopped = lane(1, "x", [1], { tokens: text([1, 2]), ...done("stopped") }),
        late = lane(1, "x", [1], { tokens: text([1, 2]), ...done("deadline") }),
        longer = lane(1, "x", [1], { tokens: text([1, 2, 3, 4]), ...done("stopped") }),
        other = lane(1, "x", [1], { tokens: text([1, 9]), ...done("stopped") });
      same(
        [stopped, late].map((x) => [
          SV.verdict.firstDifference(x, base).at,
          SV.verdict.firstDifference(x, base).cut,
          SV.verdict.firstDifference(x, base).same,
        ]),
        [
          [null, true, 2],
          [null, true, 2],
        ],
        "cut",
      );
      same(
        [SV.verdict.firstDifference(longer, base).at, SV.verdict.firstDifference(other, base).at],
        [3, 1],
        "a real difference stays one",
      );
      for (const finish of ["stopped", "deadline"]) {
        /* plain decoding was cut first: no more is claimed than was compared */
        const ahead = lane(1, "Fast", [1], { tokens: text([1, 2, 3, 4, 5]), ...done(finish) });
        ahead.rounds[0].sum.tokens = 5;
        const said = (k) =>
          SV.headline.say(ahead, lane(0, "autoregressive", [1], { tokens: text([1, 2].slice(0, k)), ...done(finish) }));
        same(
          [said(2).text, said(2).same],
          [
            "Stopped after 5 tokens, in 1 pass instead of 5: the same for the first 2, as far as plain decoding came.",
            "same text so far: 2 of 5 checked",
          ],
          finish,
        );
        same(said(0).text, "Stopped after 5 tokens, in 1 pass instead of 5.", finish);
        same([said(0).same, said(0).sure], ["", false], "nothing was compared");
      }
      for (const x of [base, stopped, late]) x.header.sampling = { temperature: 0 };
      same(
        SV.figures.certificate(stopped, base),
        ["same so far", "2 tokens compared, then stopped"],
        "how far it looked",
      );
      same(
        SV.figures.certificate(lane(2, "y", [1], { ...base, id: 2 }), base),
        ["identical", "3 tokens, all compared"],
        "whole",
      );
    },
    "a busy machine is said in the result, and nobody has won on it"(SV) {
      const slow = { checks: [{ kind: "busy", detail: {} }] },
        v = SV.verdict.verdict([lane(0, "Slow", [2]), lane(1, "Fast", [1], slow)]);
      ok(!v.sure && v.winner === null, "nobody");
      same(
        v.sentence,
        "Fast took the fewest passes of the large model, 1 for 10 tokens. The machine was busy: times are not counted.",
        "sentence",
      );
      const [plain, fast] = [lane(0, "autoregressive", [2]), lane(1, "Fast", [1], slow)];
      for (const x of [plain, fast]) x.done.finish = "length";
      const said = SV.headline.say(fast, plain).text;
      ok(said.endsWith(": same text, times not counted.") && !said.includes("fast"), said);
    },
    "no lane wins by a speed-up that its accepted length cannot carry"(SV) {
      const made = (id, title, seconds, passes) => {
        const one = lane(id, title, seconds);
        one.rounds[0].sum.passes = passes;
        return one;
      };
      for (const runs of [1, 3]) {
        const plain = made(0, "autoregressive", Array(runs).fill(3), 10),
          fast = made(1, "Fast", Array(runs).fill(1), 7) /* 3.0 times at 1.43 tokens a pass */,
          v = SV.verdict.verdict([plain, fast]);
        same([v.winner, v.second, v.sure, v.level], [null, null, false, true], "nobody has won");
        ok(v.sentence.includes(SV.messages.say("verdict.implausible", { title: "Fast" })), v.sentence);
        ok(SV.verdict.verdict([plain, made(1, "Fast", Array(runs).fill(1), 3)]).winner, "3.33 tokens a pass carry it");
      }
    },
    "an upper bound wins no race, and shares are of that with the same draft length"(SV) {
      const with4 = (one, gamma) => Object.assign(one.header, { knobs: { gamma } }) && one,
        plain = lane(0, "autoregressive", [4, 4, 4]),
        fast = with4(lane(1, "Fast", [2, 2, 2]), 4),
        oracle = with4(lane(2, "Oracle", [1, 1, 1]), 4);
      oracle.header.method.bound = true;
      const v = SV.verdict.verdict([plain, fast, oracle]);
      same([v.winner.id, v.second.id], [1, 0], "the oracle is not ranked");
      ok(!v.sentence.includes("Oracle") && !v.sentence.includes(SV.messages.say("verdict.servers")), v.sentence);
      const rows = [plain, fast, oracle].map((one) => ({ lane: one, m: SV.metrics.of(one, 1, plain) })),
        shares = () => rows.map((r) => SV.metrics.ofPossible(r, rows));
      same(shares(), [null, 0.5, 1], "plain decoding has no draft length");
      fast.header.knobs.gamma = 5;
      same(shares(), [null, null, 1], "another draft length has another bound");
      const read = SV.shape.shape({ type: "header", lane: 0, seq: 0, method: { key: "oracle", bound: true } });
      same(read.method.bound, true, "a trace says it");
    },
    "who was slower than plain decoding is named, and only who was so in every pair"(SV) {
      const said = (...lanes) => SV.verdict.verdict([lane(0, "autoregressive", [1, 1]), ...lanes]).sentence;
      ok(
        said(lane(1, "Slow", [2, 2]), lane(2, "Fast", [0.5, 0.5])).endsWith(
          " Slow was slower than plain decoding here.",
        ),
        "one",
      );
      ok(
        said(lane(1, "A", [2, 2]), lane(2, "B", [3, 3])).endsWith(" A and B were slower than plain decoding here."),
        "two",
      );
      ok(!said(lane(1, "Mixed", [2, 0.9]), lane(2, "Near", [1.01, 1.02])).includes("slower"), "noise");
    },
    "a painting that is slow is followed by a rest, the longer the fewer cores there are"(SV) {
      const pace = new SV.paintRate.PaintRate(SV.paintRate.part(2));
      same(pace.beat(100), 100, "nothing learned");
      for (let i = 0; i < 30; i++) pace.learn(60);
      ok(Math.abs(pace.beat(100) - 600) < 1, "60 ms are 10 % of 600 ms: " + pace.beat(100));
      ok(
        new SV.paintRate.PaintRate(SV.paintRate.part(8)).beat(100) === 100 && SV.paintRate.share(1e9) < 5000,
        "never for ever",
      );
    },
    "the target's size and nature stand by its name"(SV) {
      same(
        SV.notice.nature({ name: "x", parameters: 57e6 }),
        "x, 57 M parameters: a toy, its facts are unreliable",
        "small",
      );
      same(SV.notice.nature({ name: "x", parameters: 7e9 }), "x, 7.0 B parameters", "large");
      same(
        ["a toy made for this page", ""].map((own) => SV.notice.nature({ name: "x", parameters: 52e6, nature: own })),
        ["x, 52 M parameters: a toy made for this page", "x, 52 M parameters"],
        "what models.yaml says, or that there is nothing to say",
      );
      same(SV.notice.nature({ name: "x", parameters: null }), "x", "unknown");
    },
    "no verdict while a lane runs, nor over a failed one alone"(SV) {
      same(SV.verdict.verdict([lane(0, "A", [1]), lane(1, "B", [1], { done: null })]), null, "running");
      same(SV.verdict.verdict([lane(0, "A", [1]), lane(1, "B", [1], { error: { why: "x" } })]), null, "failed");
      same(SV.verdict.verdict([lane(0, "A", [1])]), null, "alone");
    },
    "two texts part at the first token that differs, or where one ends"(SV) {
      const base = lane(0, "plain", [1], { tokens: text([1, 2, 3]) }),
        at = (toks, more) => SV.verdict.firstDifference(lane(1, "x", [1], { tokens: text(toks), ...more }), base).at;
      same([at([1, 2, 3]), at([1, 9, 3]), at([1, 2]), at([1, 2, 3, 4])], [null, 1, 2, 3], "ended");
      same(at([1, 2], { done: null }), null, "a lane that still runs agrees so far");
      const tie = lane(1, "x", [1], { checks: [{ kind: "near_tie", detail: { margin: 0.0123 } }] });
      same(SV.verdict.why(tie), "a near-tie, gap 0.012", "why");
    },
    "rows of two distributions: the tested token is among them and each sums to one"(SV) {
      const p = [1, 2, 3, 4, 5, 6].map((t) => [t, (7 - t) / 28]),
        q = [
          [9, 0.9],
          [1, 0.05],
        ],
        out = SV.distributions.rows(p, q, null, 9, [0.01, null]);
      same(out[0].tok, 9, "the tested token stands first");
      same(out.at(-1).tok, null, "the rest is one row");
      for (const k of [0, 1])
        ok(Math.abs(out.reduce((s, r) => s + (r.v[k] || 0), 0) - 1) < 1e-9, "distribution " + k + " sums to one");
      same(out[0].v.slice(0, 2), [0.01, 0.9], "what is known of it");
      same(SV.distributions.rows(null, null, null, 1), [], "no distribution, no row");
    },
    "the residual's scale comes from a token whose three numbers are known"(SV) {
      const j = {
        p: 0.1,
        top_p: [
          [1, 0.5],
          [2, 0.1],
        ],
        resid: [[1, 0.75]],
      };
      ok(
        Math.abs(
          SV.distributions.zOf(j, {
            top: [
              [1, 0.2],
              [2, 0.8],
            ],
          }) - 0.4,
        ) < 1e-9,
        "(0.5 - 0.2) / 0.75",
      );
      same(SV.distributions.zOf(j, { top: [[2, 0.8]] }), null, "q of the token is unknown");
    },
    "playing walks every phase of every round once, and stops"(SV, fx) {
      const line = SV.fold.fold(fx.race).lanes.get(1),
        cur = { round: 0, phase: 1, left: null },
        seen = ["0.1"];
      for (let i = 0; i < 1e5; i++) {
        const on = SV.player.watch(cur, line, 1, 1),
          at = cur.round + "." + cur.phase;
        if (at !== seen.at(-1)) seen.push(at);
        if (!on) break;
      }
      const want = Array.from({ length: line.committed }, (_, r) => [1, 2, 3, 4].map((f) => r + "." + f)).flat();
      same(new Set(seen).size, seen.length, "nothing twice");
      same([seen[0], seen.at(-1)], [want[0], want.at(-1)], "from the first to the last");
      ok(
        seen.every((s) => want.includes(s)),
        "only what is there",
      );
    },
    "a short race is slowed, a long one is not"(SV) {
      const k = [0.01, 1, 1e3].map(SV.player.slowdown);
      ok(k[0] === 64 && k[1] > 1 && k[2] === 1, "slowed by " + k);
    },
  });
})();
