/* Every sentence of the page is a function of the records: each is made for runs of every kind ({kind: records}) and held against
   the records it was made from. By identifiers where a sentence has one. */
(() => {
  "use strict";
  const { same, ok } = globalThis.SPECVIZ_TOOLS;
  const P = globalThis.SpecVizPanels;
  const BROKEN = /undefined|NaN|Infinity|\[object|\{\w+\}|null/;
  const each = (SV, fx, act) => {
    for (const [kind, records] of Object.entries(fx.runs)) {
      const st = SV.fold.fold(records),
        lanes = st.order.map((id) => st.lanes.get(id));
      act(kind, lanes, lanes.find(SV.metrics.isBaseline) ?? null, records);
    }
  };
  const sampled = (lane) => SV().why.temperature(lane) > 0;
  const SV = () => globalThis.SpecViz;
  const whole = (said, where) => ok(!BROKEN.test(said), `${where}: ${said}`);

  Object.assign(globalThis.SPECVIZ_CASES, {
    "there are runs of every kind, with what they are to show"(SV, fx) {
      const seen = new Set();
      each(SV, fx, (kind, lanes) => {
        for (const lane of lanes)
          for (const r of lane.rounds)
            for (const j of r.trials) seen.add((sampled(lane) ? "sampled " : "greedy ") + j.verdict);
      });
      for (const what of ["greedy accepted", "greedy rejected", "sampled accepted", "sampled rejected"])
        ok(seen.has(what), what);
      ok(Object.keys(fx.runs).length >= 12, "kinds");
    },
    "headline: equal texts and speeds are claimed only where the records hold them"(SV, fx) {
      each(SV, fx, (kind, lanes, base) => {
        for (const lane of lanes) {
          const other = lane === base ? null : base,
            said = SV.headline.say(lane, other);
          whole(said.text + said.same + Object.values(SV.headline.reason(lane, other)).join(" "), kind);
          if (said.sure) {
            const n = Math.min(lane.tokens.length, base.tokens.length);
            ok(!lane.error && !sampled(lane) && n > 0, `${kind}: a tick`);
            same(
              lane.tokens.slice(0, n).map((t) => t.tok),
              base.tokens.slice(0, n).map((t) => t.tok),
              kind,
            );
          }
          const speed = other && SV.metrics.of(lane, lane.committed, other).speed;
          if (/times as fast/.test(said.text)) ok(speed?.named, `${kind}: a speed that is not named: ${said.text}`);
        }
      });
    },
    "headline: from how many tokens a round pays is the price that was measured"(SV, fx) {
      each(SV, fx, (kind, lanes, base) => {
        for (const lane of lanes) {
          const of = SV.price.of(lane, base);
          if (!of) continue;
          const speed = SV.timing.against(lane, base, true, 1).value;
          ok(Math.abs(of.each / of.even / speed - 1) < 1e-9, `${kind}: ${of.each} / ${of.even} is not ${speed}`);
        }
      });
    },
    "verdict: a winner has ended, was not cut off by an error, and is ahead beyond its interval"(SV, fx) {
      each(SV, fx, (kind, lanes) => {
        const v = SV.verdict.verdict(lanes);
        if (!v) return;
        whole(v.sentence, kind);
        if (!v.winner) return;
        ok(v.winner.done && !v.winner.error, kind);
        ok(v.level || SV.timing.against(v.winner, v.second, true).low > 1, kind);
      });
    },
    "why: the sentence is of the verdict, and a greedy run has no draw"(SV, fx) {
      const START = {
        acc: /^why\.(kept|tail\.accepted)/,
        rej: /^why\.refused/,
        ski: /^why\.unseen/,
        dra: /^why\.guess/,
        cor: /^why\.tail\.correction/,
        bon: /^why\.tail\.bonus/,
      };
      each(SV, fx, (kind, lanes) => {
        for (const lane of lanes)
          for (const r of lane.rounds)
            for (const phase of [1, 2, 3, 4])
              for (const sel of ["tail", ...r.nodes.map((n) => n.id)]) {
                const found = SV.why.explain(lane, r, sel, phase);
                if (!found) continue;
                if (START[found.cls])
                  ok(START[found.cls].test(found.ids[0]), `${kind}: ${found.cls} is ${found.ids[0]}`);
                for (const id of found.ids) {
                  ok(Object.hasOwn(SV.messages.TEXTS, id), id);
                  whole(SV.messages.say(id, found.values), kind);
                  if (/sampled|copied/.test(id)) ok(sampled(lane), `${kind}: ${id}`);
                  if (/greedy/.test(id)) ok(!sampled(lane), `${kind}: ${id}`);
                }
                const numbers = SV.why.numbers(lane, r, found.node);
                for (const [id, values] of numbers) whole(SV.messages.say(id, values), kind);
                const ids = numbers.map(([id]) => id);
                if (ids.includes("numbers.draw")) ok(sampled(lane), `${kind}: a draw`);
                if (ids.includes("numbers.nodraw")) ok(!sampled(lane), `${kind}: no draw`);
              }
      });
    },
    "a round's sentence counts what its records hold"(SV, fx) {
      each(SV, fx, (kind, lanes) => {
        for (const lane of lanes)
          for (const r of lane.rounds)
            for (const phase of [1, 2, 3, 4]) {
              const said = SV.round.sentence(lane, r, phase);
              whole(said, kind);
              const n = r.nodes.filter((x) => !x.probe).length;
              if (n) ok(said.includes(SV.dom.count(n, "token")), `${kind}: ${said}`);
              if (phase === 4 && r.commit && r.why === "bonus")
                ok(said.includes(SV.dom.count(r.commit.n_new, "token")), said);
            }
      });
    },
    "probabilities: a refused token is never said to be accepted"(SV) {
      for (const softmax of [true, false])
        for (const last of [true, false])
          for (const q of [true, false])
            for (const residual of [true, false]) {
              const id = SV.distributions.noteId({ rejected: true, last, softmax, p: true, q, residual });
              ok(id !== "dist.kept" && (!softmax || id === ""), id);
            }
      same(
        SV.distributions.noteId({ rejected: false, p: true, q: true, softmax: true }),
        "",
        "a greedy run draws nothing",
      );
      same(SV.distributions.noteId({ rejected: false, p: true, q: true }), "dist.kept", "a kept one");
    },
    "quiz: what is said before the answer follows from p and q"(SV, fx) {
      each(SV, fx, (kind, _, __, records) => {
        for (const l of P.traceLanes.lanes(records))
          for (const r of l.rounds)
            for (const j of r.raw.trials) {
              const q = { l, r, j, node: r.all[j.node] },
                before = P.quiz.beforeId(q),
                after = P.quiz.afterId(q);
              for (const id of [before, after]) ok(Object.hasOwn(SV.messages.TEXTS, id), id);
              if (before === "quiz.before.drawn") ok(j.a < 1, `${kind}: it could not lose`);
              if (before === "quiz.before.certain") ok(j.a >= 0.9995 && j.verdict === "accepted", kind);
              if (l.temperature > 0)
                ok(!/greedy|after\.(kept|refused|lossy)/.test(before + after), `${kind}: ${before} ${after}`);
            }
      });
    },
    "lessons: the same text is promised only of a greedy run of an exact method"(SV, fx) {
      each(SV, fx, (kind, _, __, records) => {
        const lanes = P.traceLanes.lanes(records);
        for (const track of P.lessons.tracks)
          for (const step of track.steps) {
            const said = step.say(lanes);
            whole(said, `${kind}, ${step.title}`);
            if (said.includes(SV.messages.TEXTS["lesson.same.exact"]))
              ok(
                lanes.some((l) => !l.baseline && !(l.temperature > 0) && l.exactness === "exact"),
                `${kind}: ${step.title}`,
              );
            ok(!/ 0 of 0 /.test(said), `${kind}: ${said}`);
          }
      });
    },
    "going round in circles is blamed on a method only where plain decoding does not do it"(SV) {
      const lane = (toks, key) => ({ header: { method: { key, title: key } }, tokens: toks.map((tok) => ({ tok })) }),
        round = Array.from({ length: 36 }, (_, i) => i % 12),
        [own, plain, other] = [lane(round, "x"), lane(round, "autoregressive"), lane([1, 2, 3], "autoregressive")],
        says = (id) => SV.messages.say(id, { title: "x", at: "1", n: "12 tokens", times: "3" });
      same(SV.circles.sentence(own, plain), says("circles.both"), "both");
      same(SV.circles.sentence(own, other), says("circles"), "the method alone");
    },
    "be the draft: the right token is among four, the draft's own guess is judged as it was, and the sums are the Lab's"(
      SV,
      fx,
    ) {
      const G = P.draftGame;
      let asked = 0;
      each(SV, fx, (kind, _, __, records) => {
        for (const l of P.traceLanes.lanes(records).filter((x) => !x.baseline)) {
          const list = G.places(l),
            game = G.choose(list, 3);
          same(
            game.map((x) => x.candidates),
            G.choose(list, 3).map((x) => x.candidates),
            "the same seed is the same game",
          );
          for (const place of game) {
            asked++;
            ok(new Set(place.candidates).size === G.CANDIDATES && place.candidates.includes(place.right), kind);
            if (l.temperature > 0) continue;
            ok(G.keeps(place, place.right), `${kind}: the right one`);
            same(G.keeps(place, place.draft), place.draftKept, `${kind}: the draft's own guess`);
            for (const tok of place.candidates) same(G.keeps(place, tok), tok === place.right, kind);
          }
          const none = G.outcome(l, 0, 10),
            all = G.outcome(l, 10, 10);
          same(none.tokens, 1, "nothing kept is one token a round");
          if (l.rounds.some((r) => r.depth)) ok(all.tokens > 1 && (all.speed === null || all.speed > none.speed), kind);
        }
      });
      ok(asked > 20, "places: " + asked);
    },
    "the notice names machine and state of its header, also where fields are missing"(SV, fx) {
      each(SV, fx, (kind, lanes) => {
        for (const lane of lanes)
          for (const state of ["live", "stopped", "done", "error"])
            for (const mode of ["live", "recorded", "simulated"])
              if (lane.header) whole(SV.notice.sentence(lane.header, state, true, mode, false), kind);
      });
    },
  });
})();
