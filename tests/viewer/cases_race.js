/* What a race comes to: who won, where two texts part, and two distributions side by side. */
(() => {
  "use strict";
  const { same, ok } = globalThis.SPECVIZ_TOOLS;
  /* An ended lane with one run of its own and those given: 10 tokens in `seconds` each, in ten rounds; it counts one pass, so that
     any speed-up is possible. */
  const ROUNDS = 10;
  const lane = (id, title, seconds, more = {}) => {
    const each = seconds[0] / ROUNDS,
      sum = { passes: 1, pos: [], parts: [0, 0, 0, 0, 0] };
    const repeats = seconds.slice(1).map((s) => ({ tokens: 10, seconds: s }));
    const rounds = Array.from({ length: ROUNDS }, (_, i) => ({
      i,
      sum: { ...sum, tokens: i + 1, seconds: each * (i + 1), rounds: i + 1 },
      commit: { t: each * (i + 1), n_new: 1 },
      lens: [],
      nodes: [],
      passes: 1,
      rows: 1,
      timing: { parts: [0, each, 0, 0, 0] },
    }));
    return {
      id,
      header: { method: { key: title, title } },
      committed: ROUNDS,
      rounds,
      ends: rounds.map((r) => r.commit.t),
      tokens: [],
      checks: [],
      done: { totals: { tokens: 10, seconds: seconds[0], repeats } },
      ...more,
    };
  };
  const last = (made) => made.rounds[made.rounds.length - 1];
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
        last(made).lens = [{ kind: "class", data: { prompts: ["a", "b", "c"], written, seconds: time } }];
        Object.assign(last(made).sum, {
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
      ok(!SV.headline.say(lane(3, "Fast", [1]), null).text.includes("at once"), "one prompt alone");
    },
    "a run that was no faster says what its passes and its guesses cost"(SV) {
      const timed = (id, title, draft, verify, rounds = ROUNDS) => {
        const made = lane(id, title, [1]);
        made.rounds = made.rounds.slice(0, rounds);
        made.committed = rounds;
        for (const r of made.rounds) r.timing.parts = [draft, verify, 0, 0, 0];
        return made;
      };
      const plain = timed(0, "autoregressive", 0, 0.1),
        of = (made) => SV.price.of(made, plain);
      const slow = of(timed(1, "Slow", 0.075, 0.15));
      same([slow.verify.toFixed(2), slow.share.toFixed(2), slow.even.toFixed(2), slow.each], ["1.50", "0.33", "2.25", 1], "price");
      const words = SV.headline.reason(timed(1, "Slow", 0.075, 0.15), plain);
      const values = { each: "1.00", even: "2.25", times: "1.5", share: "33" };
      const [pays, why] = ["headline.pays", "headline.reason"].map((id) => SV.messages.say(id, values));
      same(words, { pays, why }, "both");
      const fast = SV.headline.reason(timed(2, "Fast", 0.01, 0.04), plain);
      same(fast, { pays: SV.messages.say("headline.pays", { each: "1.00", even: "0.50" }), why: "" }, "a faster one");
      same(of(timed(3, "Few", 0.1, 0.1, 7)), null, "few rounds are chance");
      same(of(plain), null, "plain decoding has no price");
      const cost = { each: "1.00", even: "0.50", share: "20" };
      same(SV.race.priceWords(timed(4, "Fast", 0.01, 0.04), plain), SV.messages.say("race.price", cost), "the race says it, too");
    },
    "sampled lanes are other texts: no pass is counted against plain decoding"(SV) {
      const drawn = (id, title, seconds, count) => {
        const made = lane(id, title, [seconds]);
        made.header.sampling = { temperature: 1 };
        Object.assign(last(made).sum, { tokens: count, passes: 53, accepted: 30, tried: 60, drafted: 60 });
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
      last(made).why = "small";
      made.tokens = text([1, 2, 3, 4, 5]).map((t, i) => ({ ...t, round: i < 2 ? 0 : ROUNDS - 1 }));
      made.done.totals.tokens = 5;
      made.rounds.forEach((r) => (r.sum = { ...r.sum, tokens: 5 }));
      const said = SV.headline.say(made, lane(0, "autoregressive", [2])).text;
      ok(/5 tokens: 2 by .* 3 by /.test(said) && !said.includes("tokens a pass"), said);
    },
    "a winner is named only where the spreads lie apart"(SV) {
      const apart = SV.verdict.verdict([lane(0, "Slow", [2, 2.1, 1.9]), lane(1, "Fast", [1, 1.1, 0.9])]);
      ok(apart.sure && apart.sentence.startsWith("Fast won, 100 % ahead of Slow: "), apart.sentence);
      ok(apart.sentence.includes("in 3 runs each"), apart.sentence);
      const mixed = SV.verdict.verdict([lane(0, "Slow", [1.1, 0.95, 1.1]), lane(1, "Fast", [1, 1, 1])]);
      ok(!mixed.sure && mixed.sentence.startsWith("No winner: "), mixed.sentence);
    },
    "with repeats the headline and the table are the medians of the same pairs"(SV) {
      /* The second run was slow for both, and the third of the baseline is missing: two pairs are left. */
      const plain = lane(0, "Plain", [2, 4]),
        fast = lane(1, "Fast", [1, 2, 9]),
        runs = SV.metrics.common([plain, fast]),
        m = SV.metrics.of(fast, ROUNDS, plain, runs),
        base = SV.metrics.of(plain, ROUNDS, plain, runs),
        v = SV.verdict.verdict([plain, fast]);
      same([runs, m.walltime_speedup, m.spread.runs], [2, 2, 2], "pairs");
      ok(m.tokens_per_second >= m.spread.low && m.tokens_per_second <= m.spread.high, "inside its own spread");
      ok(v.sure && !v.level && v.sentence.includes("100 % ahead"), v.sentence);
      for (const x of [m, base]) ok(v.sentence.includes(x.tokens_per_second.toFixed(1)), v.sentence);
      const noisy = [lane(0, "Plain", [1, 1, 0.2]), lane(1, "Fast", [0.3, 1.2, 0.3])],
        none = SV.verdict.verdict(noisy);
      ok(none.level && !none.sure && none.sentence.endsWith(SV.messages.say("timing.wide")), "nothing is bold where nothing won");
    },
    "seconds and speed of repeated runs go together, and the headline is of the table's pairs"(SV) {
      /* A third lane has two runs only, so that two of each are pairs. */
      const heads = (list) =>
          list.map(
            (l) => ((l.header.sampling = { temperature: 0 }), (l.tokens = text([1, 2])), (l.done.finish = "length"), l),
          ),
        [plain, fast, cut] = heads([
          lane(0, "autoregressive", [8, 6, 100]),
          lane(1, "Fast", [2, 2, 1]),
          lane(2, "Cut", [3, 3]),
        ]),
        runs = SV.metrics.common([plain, fast, cut]),
        m = SV.metrics.of(fast, ROUNDS, plain, runs);
      ok(Math.abs(m.seconds * m.tokens_per_second - m.tokens) < 1e-9, "seconds are those of the speed beside them");
      const said = SV.headline.say(fast, plain, runs).text;
      const many = SV.messages.say("headline.median", { runs: "2" });
      ok(said.includes(m.walltime_speedup.toFixed(1)) && said.includes(many), said);
      const [slow, near] = heads([lane(0, "autoregressive", [1, 1, 0.8]), lane(1, "Fast", [0.9, 1.1, 0.9])]),
        none = SV.headline.say(near, slow, 3).text;
      ok(none.includes(SV.messages.say("headline.level.about", { low: "0.89", high: "1.11" }).slice(0, 20)), none);
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
        last(ahead).sum.tokens = 5;
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
    "a busy machine is said, and its interrupted passes count as usual ones"(SV) {
      const [plain, fast] = [lane(0, "autoregressive", [2]), lane(1, "Fast", [1], { checks: [{ kind: "busy", detail: {} }] })];
      plain.rounds[3].timing.parts[1] *= 5;
      for (const x of [plain, fast]) x.done.finish = "length";
      same(SV.metrics.of(fast, ROUNDS, plain).walltime_speedup.toFixed(3), "2.000", "the interrupted pass is replaced");
      same(
        SV.timing.busySentence([plain, fast]),
        SV.messages.say("timing.busy.replaced", { replaced: "1", of: "20" }),
        "sentence",
      );
      ok(SV.headline.say(fast, plain).text.includes(SV.messages.say("headline.fast", { value: "2.0" })), "a speed");
    },
    "where the interval is wider than a factor of two no speed is named anywhere"(SV) {
      const [plain, fast] = [lane(0, "autoregressive", [3]), lane(1, "Fast", [1])];
      fast.rounds.forEach((r, i) => Object.assign(r, { rows: 1 + i, timing: { parts: [0, i < 8 ? 0.01 : 0.5, 0, 0, 0] } }));
      for (const x of [plain, fast]) x.done.finish = "length";
      const m = SV.metrics.of(fast, ROUNDS, plain),
        v = SV.verdict.verdict([plain, fast]),
        said = SV.headline.say(fast, plain).text;
      same([m.walltime_speedup, m.speed.named, v.winner, SV.timing.doubt([plain, fast])], [null, false, null, "timing.wide"], "none");
      ok(v.sentence.endsWith(SV.messages.say("timing.wide")), v.sentence);
      ok(!said.includes(SV.messages.say("headline.level")) && !said.includes("times as fast"), said);
      const csv = SV.figures.finalFigures(fast, plain, 1);
      same([csv.speedup, csv.speedup_low, csv.counted], ["", "", "no"], "csv");
    },
    "a table as CSV: bare numbers, the unit in the head, an interval in columns of its own"(SV) {
      const rows = [
        ["method", "tokens/s", "times", "kept", "took", "note"],
        ["A", "46 (44 to 48)", "1.40\u00d7", "33 %", "12.5 ms", "3 of 4"],
        ["B, =1", "\u2013", "0.98\u00d7", "7 %", "1.2 s", ""],
      ];
      same(
        SV.csv.bare(rows),
        [
          ["method", "tokens/s", "tokens/s low", "tokens/s high", "times", "kept (%)", "took (s)", "note"],
          ["A", 46, 44, 48, 1.4, 33, 0.0125, "3 of 4"],
          ["B, =1", "", "", "", 0.98, 7, 1.2, ""],
        ],
        "columns",
      );
    },
    "a table's values are bare numbers, with an interval in columns of its own"(SV) {
      const [plain, fast] = [lane(0, "autoregressive", [2]), lane(1, "Fast", [1])],
        row = SV.figures.finalFigures(fast, plain, 1);
      same([row.tokens, row.speedup, row.speedup_low, row.counted, row.tokens_per_second], [10, 2, 1.90476, "yes", 10], "values");
      for (const [name, x] of Object.entries(row))
        if (!["method", "counted", "same_text"].includes(name)) ok(x === "" || typeof x === "number", name);
    },
    "no lane wins by a speed-up that its accepted length cannot carry"(SV) {
      const made = (id, title, seconds, passes) => {
        const one = lane(id, title, seconds);
        last(one).sum.passes = passes;
        return one;
      };
      for (const runs of [1, 3]) {
        const plain = made(0, "autoregressive", Array(runs).fill(3), 10),
          fast = made(1, "Fast", Array(runs).fill(1), 7) /* 3.0 times at 1.43 tokens a pass */,
          v = SV.verdict.verdict([plain, fast]);
        same([v.winner, v.second, v.sure, v.level], [null, null, false, true], "nobody has won");
        ok(v.sentence.endsWith(SV.messages.say("timing.wide")), v.sentence);
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
      const rows = [plain, fast, oracle].map((one) => ({ lane: one, m: SV.metrics.of(one, ROUNDS, plain) })),
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
    "lanes that were cut at texts of unequal length are not ranked by time"(SV) {
      const [plain, fast] = [lane(0, "autoregressive", [2]), lane(1, "Fast", [1])];
      for (const x of [plain, fast]) x.done.finish = "deadline";
      same(SV.verdict.verdict([plain, fast]).winner?.id, 1, "of equal length");
      plain.rounds.pop();
      plain.committed -= 1;
      const v = SV.verdict.verdict([plain, fast]);
      same([v.winner, v.second, v.level], [null, null, true], "unequal");
      ok(v.sentence.endsWith(SV.messages.say("verdict.cut")), v.sentence);
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
