/* Structured output on the board: which tokens the grammar forced, and what it forbade where a token was written. */
(() => {
  "use strict";
  const { same } = globalThis.SPECVIZ_TOOLS;

  /* A lane with one round of two drafted tokens, both kept, and a bonus; the notes come after the text. */
  function lane(SV, notes) {
    const st = SV.fold.initial();
    let seq = 0;
    const put = (type, rest) => SV.fold.step(st, { type, seq: seq++, lane: 0, ...rest });
    put("header", {
      schema: "specviz-trace/1", mode: "recorded", method: { key: "x", title: "X" }, prompt: { text: "p" },
      sampling: { temperature: 0 }, max_new_tokens: 9,
    }); // prettier-ignore
    put("vocab", { tokens: { 5: "YQ==", 6: "Yg==", 7: "Yw==", 8: "ZA==" }, special: [] });
    put("draft", { round: 0, t0: 0, t1: 1, kind: "chain", nodes: [{ id: 0, parent: -1, tok: 5 }, { id: 1, parent: 0, tok: 6 }] });
    put("verify", { round: 0, t0: 1, t1: 2, n_in: 3 });
    for (const node of [0, 1]) put("judge", { round: 0, node, rule: "match", p: 1, q: 1, a: 1, u: 0.5, verdict: "accepted" });
    put("commit", { round: 0, t: 2, path: [0, 1], tail: { tok: 7, why: "bonus" }, n_new: 3 });
    put("text", { round: 0, pieces: [5, 6, 7].map((tok, i) => ({ tok, b: "YQ==", span: [i, i + 1] })) });
    for (const [kind, data] of notes) put("lens", { round: 0, kind, data });
    return st.lanes.get(0);
  }
  const NOTE = { tokens: [5, 6, 7], allowed: [1, 4, 1], removed: [0.9, 0.25, 0], top: [[8, 0.6], [6, 0.5], [7, 1]] };

  Object.assign(globalThis.SPECVIZ_CASES, {
    "the grammar's numbers are those of the chosen token"(SV) {
      const l = lane(SV, [["grammar", NOTE]]),
        r = l.rounds[0];
      same([0, 1, "tail"].map((id) => SV.grammarView.at(r, id)?.allowed), [1, 4, 1], "allowed");
      same(SV.grammarView.at(r, 0), { allowed: 1, removed: 0.9, top: [8, 0.6] }, "first token");
      same([0, 1, "tail"].map((id) => SV.grammarView.forced(r, id)), [true, false, true], "forced");
      same(SV.grammarView.any(l), true, "any");
    },
    "a drafted token is forced where its note says so, and nothing is without notes"(SV) {
      const r = lane(SV, [["forced", { tokens: [5, 9] }]]).rounds[0];
      same([0, 1, "tail"].map((id) => SV.grammarView.forced(r, id)), [true, false, false], "forced");
      const bare = lane(SV, []);
      same([SV.grammarView.any(bare), SV.grammarView.at(bare.rounds[0], 0), SV.grammarView.forced(bare.rounds[0], 0)], [false, null, false], "bare");
    },
    "notes of any shape are no harm"(SV) {
      for (const data of [null, 3, [], {}, { allowed: "x", removed: [1] }, { allowed: [NaN], removed: [0.5], top: 4 }]) {
        const r = lane(SV, [["grammar", data], ["forced", data]]).rounds[0];
        same([SV.grammarView.at(r, 0), SV.grammarView.forced(r, 0)], [null, false], JSON.stringify(data));
      }
    },
    "the time to the first token is the prefill and the first round"(SV) {
      const st = SV.fold.initial();
      let seq = 0;
      const put = (type, rest) => SV.fold.step(st, { type, seq: seq++, lane: 0, ...rest });
      put("header", { schema: "specviz-trace/1", mode: "recorded", method: { key: "x", title: "X" }, prompt: { text: "p" }, sampling: { temperature: 0 } });
      put("prefill", { t0: 1, t1: 3, n: 4 });
      const l = st.lanes.get(0);
      same(SV.metrics.of(l, 0).time_to_first_token, null, "before the first round");
      put("draft", { round: 0, t0: 3, t1: 3, kind: "none", nodes: [] });
      put("verify", { round: 0, t0: 3, t1: 4, n_in: 1 });
      put("commit", { round: 0, t: 5, path: [], tail: { tok: 7, why: "plain" }, n_new: 1 });
      same(SV.metrics.of(l, 1).time_to_first_token, 4, "2 s of prefill and 2 s of the round");
    },
  });
})();
