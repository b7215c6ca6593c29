/* Why a token stands or was refused: every verdict with every kind of token has its message, and it agrees with the trace. */
(() => {
  "use strict";
  const { same, ok } = globalThis.SPECVIZ_TOOLS;
  const END = 2,
    LIMIT = 48;
  /* A lane with one round. nodes: [{tok, parent?, src?}], judges: [{verdict, p, q, a, u, rule}] by node, tail: {tok, why}. */
  function lane(SV, { temperature = 0, nodes = [], judges = [], path = [], tail, finish = "", kind = "chain", more = false }) {
    const st = SV.fold.initial();
    let seq = 0;
    const put = (type, rest) => SV.fold.step(st, { type, seq: seq++, lane: 0, ...rest });
    const toks = [...new Set([END, tail.tok, ...nodes.map((n) => n.tok)])];
    const text = (ids) => ids.map((tok, i) => ({ tok, b: tok === END ? "" : "YQ==", span: [i, i + 1] }));
    const written = [...path.map((i) => nodes[i].tok), tail.tok];
    put("header", {
      schema: "specviz-trace/1", mode: "recorded", method: { key: "x", title: "X" }, prompt: { text: "p" },
      sampling: { temperature }, max_new_tokens: LIMIT,
    }); // prettier-ignore
    put("vocab", { tokens: Object.fromEntries(toks.map((t) => [t, "YQ=="])), special: [END] });
    put("draft", { round: 0, t0: 0, t1: 1, kind, nodes: nodes.map((n, id) => ({ id, parent: id - 1, ...n })) });
    put("verify", { round: 0, t0: 1, t1: 2, n_in: nodes.length + 1 });
    judges.forEach((j, node) => j && put("judge", { round: 0, node, rule: "ratio", ...j }));
    put("commit", { round: 0, t: 2, path, tail, n_new: written.length });
    put("text", { round: 0, pieces: text(written) });
    if (more) put("commit", { round: 1, t: 3, path: [], tail: { tok: 9, why: "plain" }, n_new: 1 });
    if (finish) put("done", { finish, totals: {} });
    const out = st.lanes.get(0);
    return out;
  }
  const ids = (SV, l, sel) => SV.why.explain(l, l.rounds[0], sel).ids;
  const yes = { verdict: "accepted", p: 1, q: 1, a: 1, u: 0.5 },
    no = { verdict: "rejected", p: 0, q: 1, a: 0, u: 0.5 };

  Object.assign(globalThis.SPECVIZ_CASES, {
    "an end token that was drafted and accepted is kept, and ends the answer"(SV) {
      for (const path of [[], [0]]) {
        /* alone in its round, and after another guess: the last round of the shipped examples */
        const nodes = path.length ? [{ tok: 5 }, { tok: END }] : [{ tok: END }],
          l = lane(SV, { nodes, judges: nodes.map(() => yes), path, tail: { tok: END, why: "accepted" }, finish: "stop" }),
          got = SV.why.explain(l, l.rounds[0], "tail");
        same(got.ids, ["why.kept.greedy", "why.token.end"], "message");
        same([got.cls, got.node, got.tok], ["acc", nodes.length - 1, END], "the node of the trace");
      }
    },
    "every verdict at every temperature has its message, and it is the trace's verdict"(SV) {
      const drawn = { p: 0.4, q: 0.8, a: 0.5 },
        copied = { p: 0.3, q: null, a: 0.3 },
        odd = { p: 0.3, q: 0.4, a: 0.9 },
        table = [
          [0, { ...yes }, "why.kept.greedy"],
          [0, { ...yes, p: 0 }, "why.kept.lossy"],
          [0, { ...no }, "why.refused.greedy"],
          [1, { verdict: "accepted", u: 0.2, ...drawn }, "why.kept.sampled"],
          [1, { verdict: "accepted", u: 0.2, p: 0.9, q: 0.8, a: 1 }, "why.kept.certain"],
          [1, { verdict: "rejected", u: 0.7, ...drawn }, "why.refused.sampled"],
          [1, { verdict: "accepted", u: 0.1, rule: "match", ...copied }, "why.kept.copied"],
          [1, { verdict: "rejected", u: 0.7, rule: "match", ...copied }, "why.refused.copied"],
          [1, { verdict: "accepted", u: 0.2, rule: "prefix", ...odd }, "why.kept.rule"],
          [1, { verdict: "rejected", u: 0.95, rule: "prefix", ...odd }, "why.refused.rule"],
          [1, { verdict: "accepted", p: null, q: null, a: null, u: null, rule: "grade" }, "why.kept.rule"],
        ];
      for (const [temperature, judge, id] of table)
        for (const tok of [5, END]) {
          const kept = judge.verdict === "accepted",
            l = lane(SV, {
              temperature, nodes: [{ tok }], judges: [judge], path: kept ? [0] : [],
              tail: { tok: 7, why: kept ? "bonus" : "correction" }, more: true,
            }), // prettier-ignore
            got = SV.why.explain(l, l.rounds[0], 0);
          same(got.cls, kept ? "acc" : "rej", id);
          same(got.ids, tok === END ? [id, kept ? "why.token.special" : "why.token.end_refused"] : [id], id);
          same([got.node, got.tok], [0, tok], id);
        }
    },
    "what was never examined says why"(SV) {
      const chain = lane(SV, {
        nodes: [{ tok: 5 }, { tok: END }], judges: [no, { verdict: "skipped" }], tail: { tok: 7, why: "correction" },
      }); // prettier-ignore
      same(ids(SV, chain, 1), ["why.unseen.chain", "why.token.end_unseen"], "after a refusal");
      const cut = lane(SV, {
        nodes: [{ tok: END }, { tok: 5 }], judges: [yes, { verdict: "skipped" }],
        tail: { tok: END, why: "accepted" }, finish: "stop",
      }); // prettier-ignore
      same(ids(SV, cut, 1), ["why.unseen.cut"], "after the end");
      const tree = lane(SV, {
        kind: "tree", nodes: [{ tok: 5, parent: -1 }, { tok: 6, parent: -1 }], judges: [yes, { verdict: "skipped" }],
        path: [0], tail: { tok: 7, why: "bonus" },
      }); // prettier-ignore
      same(ids(SV, tree, 1), ["why.unseen.tree"], "a sibling");
    },
    "every way a round can end, with every way the run can end there"(SV) {
      const ends = { stop: "", length: "limit", stop_string: "stop_string", stopped: "stopped", deadline: "deadline", context: "context" };
      for (const why of ["bonus", "small", "unchecked", "forced", "plain", "correction"])
        for (const temperature of [0, 1])
          for (const [finish, kind] of Object.entries(ends)) {
            const drafted = why === "bonus" || why === "correction",
              judge = why === "bonus" ? yes : no,
              l = lane(SV, {
                temperature, nodes: drafted ? [{ tok: 5 }] : [], judges: drafted ? [judge] : [], path: why === "bonus" ? [0] : [],
                tail: { tok: 7, why }, finish,
              }), // prettier-ignore
              id = why === "correction" ? "why.tail.correction." + (temperature ? "sampled" : "greedy") : "why.tail." + why;
            same(ids(SV, l, "tail"), kind ? [id, "why.token." + kind] : [id], why + " " + finish);
          }
      const end = lane(SV, { nodes: [{ tok: 5 }], judges: [yes], path: [0], tail: { tok: END, why: "bonus" }, finish: "stop" });
      same(ids(SV, end, "tail"), ["why.tail.bonus", "why.token.end"], "an end token of the target's own");
      const cut = lane(SV, { nodes: [{ tok: 5 }, { tok: 6 }], judges: [yes, yes], path: [0], tail: { tok: 6, why: "accepted" }, finish: "length" });
      same(ids(SV, cut, "tail"), ["why.kept.greedy", "why.token.limit"], "a guess at the limit");
      const guessed = lane(SV, { nodes: [{ tok: 5 }], judges: [no], tail: { tok: 7, why: "plain" } });
      same(ids(SV, guessed, "tail"), ["why.tail.drafted"], "a guess was there");
    },
    "every message that can be asked for is written"(SV) {
      const known = Object.keys(SV.messages.TEXTS);
      ok(known.length > 30 && known.every((id) => SV.messages.TEXTS[id].length > 2), "texts");
      same(SV.messages.parts("why.token.limit", { limit: 48 }).join(""), SV.messages.say("why.token.limit", { limit: "48" }), "parts");
      same(SV.messages.parts("why.refused.greedy", { other: "{limit}<b>" })[1], "{limit}<b>", "a value is no template");
    },
    "the numbers of a token stand in one line, at temperature 0 as softmax"(SV) {
      const say = (l, id) => SV.why.numbers(l, l.rounds[0], id).map(([m]) => m);
      const drawn = { verdict: "accepted", p: 0.4, q: 0.8, a: 0.5, u: 0.2 },
        hot = lane(SV, { temperature: 1, nodes: [{ tok: 5 }], judges: [drawn], path: [0], tail: { tok: 7, why: "bonus", p: 0.3 } });
      same(say(hot, 0), ["numbers.p", "numbers.q", "numbers.accept", "numbers.draw"], "sampled");
      same(say(hot, "tail"), ["numbers.p"], "the target's own");
      const greedy = { ...no, softmax_p: 0.12, top_softmax: [[7, 0.48], [8, 0.31], [5, 0.12]] },
        cold = lane(SV, {
          nodes: [{ tok: 5 }], judges: [greedy], tail: { tok: 7, why: "correction", softmax_p: 0.48, top_softmax: [[7, 0.48], [8, 0.31]] },
        }); // prettier-ignore
      same(say(cold, 0), ["numbers.own", "numbers.softmax", "numbers.softmax", "numbers.softmax", "numbers.near", "numbers.nodraw"], "refused");
      same(SV.why.numbers(cold, cold.rounds[0], 0).at(-2)[1], { times: "4.0" }, "how near");
      same(say(cold, "tail"), ["numbers.own", "numbers.softmax", "numbers.softmax"], "the correction");
      const old = lane(SV, { nodes: [{ tok: 5 }], judges: [no], tail: { tok: 7, why: "correction" } });
      same(say(old, 0), ["numbers.nodraw"], "a trace without them");
      const told = lane(SV, { nodes: [{ tok: 5 }], judges: [{ ...no, top_p: [[7, 1]] }], tail: { tok: 7, why: "correction" } });
      same(say(told, 0), ["numbers.choice", "numbers.nodraw"], "what the target would have written");
      const rotten = { ...no, softmax_p: "x", top_softmax: [[7, 2], "y", null] },
        bad = lane(SV, { nodes: [{ tok: 5 }], judges: [rotten], tail: { tok: 7, why: "correction" } });
      ok(SV.why.numbers(bad, bad.rounds[0], 0).every(([, x]) => !/NaN|undefined/.test(JSON.stringify(x))), "of any shape");
    },
    "the draft's own probability stands beside the target's at temperature 0, where it was recorded"(SV) {
      const line = (l, id) => SV.why.numbers(l, l.rounds[0], id).filter(([m]) => m === "numbers.softmax.draft").map(([, x]) => x.q),
        lanes = (temperature, node, judge = no) =>
          lane(SV, { temperature, nodes: [{ tok: 5, q: 1, ...node }], judges: [judge], tail: { tok: 7, why: "correction" } }),
        own = { softmax_q: 0.41, top_softmax: [[5, 0.41], [7, 0.3]] }; // prettier-ignore
      same(line(lanes(0, own), 0), ["0.410"], "recorded");
      same(line(lanes(0, own), "tail"), [], "the target's own token");
      same(line(lanes(0, {}), 0), [], "an older trace, or a lookup drafter");
      same(line(lanes(1, own), 0), [], "sampled: q says it");
      same(line(lanes(0, { softmax_q: "x", top_softmax: [null, "y"] }), 0), [], "of any shape");
      if (!globalThis.document) return; /* the card is drawn in the browser only */
      const l = lanes(0, own, { ...no, softmax_p: 0.1, top_softmax: [[7, 0.5], [5, 0.1]] }), // prettier-ignore
        card = SV.card.draw({ lane: l, round: l.rounds[0], sel: 0, phase: 4 });
      same(card.querySelectorAll('[data-message="numbers.softmax.draft"]').length, 1, "on the card");
      const heads = (temperature) => {
        const judged = { ...no, p: 0, q: 1, a: 0, u: 0.9, softmax_p: 0.1, top_p: [[7, 1]], top_softmax: [[7, 0.5], [5, 0.1]] }, // prettier-ignore
          one = lanes(temperature, own, judged),
          drawn = SV.card.draw({ lane: one, round: one.rounds[0], sel: 0, phase: 4 });
        return [drawn.querySelectorAll(".ruler").length, /p target/.test(drawn.textContent), /u = 0/.test(drawn.textContent)];
      };
      same(heads(0), [0, false, false], "at temperature 0 nothing is drawn, and softmax is not called p");
      same(heads(1), [1, true, true], "sampled");
    },
    "an answer that goes round in circles is found at its third round, and counted on"(SV) {
      const lane = (toks) => ({ tokens: toks.map((tok) => ({ tok })), header: null }),
        round = Array.from({ length: 12 }, (_, i) => i + 1),
        times = (n) => Array.from({ length: n }, () => round).flat();
      same([1, 2].map((n) => SV.circles.find(lane(times(n)))), [null, null], "twice is no circle");
      same(SV.circles.find(lane([99, ...times(3)])), { at: 1, n: 12, times: 3 }, "from its first round on");
      const nine = Array.from({ length: 89 }, (_, i) => 1 + (i % 9)),
        between = [1, 2, 3].flatMap((i) => [...round, 100 + i]);
      same(SV.circles.find(lane([50, 51, 52, ...nine])), { at: 3, n: 9, times: 9 }, "rounds shorter than the run looked for");
      same(SV.circles.find(lane(between)), { at: 26, n: 12, times: 3 }, "others between: the third");
      same(SV.circles.find(lane(times(5))).times, 5, "counted on");
      same(SV.circles.find(lane(Array(35).fill(7))), null, "35 times one token are two runs of twelve");
      same(SV.circles.find(lane(Array(36).fill(7))), { at: 0, n: 1, times: 36 }, "36 are three");
      const growing = lane([]);
      for (const t of times(3)) growing.tokens.push({ tok: t }), SV.circles.find(growing);
      same(SV.circles.find(growing), SV.circles.find(lane(times(3))), "token by token");
      same(SV.circles.find(lane(Array.from({ length: 200 }, (_, i) => (i * 7) % 101))), null, "101 tokens before it repeats");
    },
    "what a length can carry, and the best of settings only outside the noise"(SV) {
      const T = SV.timing;
      same([T.plausible(3, 1.45), T.plausible(1.5, 1.45), T.plausible(0.5, 1)], [false, true, true], "what the length can carry");
      const best = (...list) => T.clearBest(list)?.name ?? null;
      same(best({ name: "a", value: 10, low: 9, high: 11 }, { name: "b", value: 9.5, low: 9, high: 10 }), null, "inside the noise");
      same(best({ name: "a", value: 10, low: 9, high: 11 }, { name: "b", value: 7, low: 6, high: 8 }), "a", "outside");
    },
  });
})();
