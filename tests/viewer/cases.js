/* What the viewer's pure part must hold, host-free: each case takes (SV, fixture) and throws when it does not hold.
   fixture: {race: [records], unicode: {records, text}, hostile: {records, text}, frames: [values]} */
(() => {
  "use strict";
  const { same, ok, hashOf, uniforms } = globalThis.SPECVIZ_TOOLS;
  const textOf = (SV, lane) =>
    lane.tokens.map((t) => t.parts.map((p) => (typeof p === "string" ? p : "")).join("")).join("");

  Object.assign(globalThis.SPECVIZ_CASES, {
    "any chunking gives the same state"(SV, fx) {
      const want = hashOf(SV, SV.fold.fold(fx.race));
      for (let seed = 1; seed <= 6; seed++) {
        const d = uniforms(seed),
          st = SV.fold.initial();
        for (let i = 0; i < fx.race.length;) {
          const n = 1 + Math.floor(d() * 50);
          SV.fold.fold(fx.race.slice(i, i + n), st);
          i += n;
        }
        same(hashOf(SV, st), want, "chunks " + seed);
      }
    },
    "the picture before a prompt is the data URL of a small PNG, or none"(SV) {
      const png = (w, h) =>
          "data:image/png;base64," +
          btoa(
            String.fromCharCode(
              ...[137, 80, 78, 71, 13, 10, 26, 10, 0, 0, 0, 13, 73, 72, 68, 82],
              ...[w, h].flatMap((n) => [n >>> 24, (n >> 16) & 255, (n >> 8) & 255, n & 255]),
              ...[8, 2, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0],
            ),
          ),
        header = (request) => SV.shape.shape({ type: "header", seq: 0, lane: 0, request }).picture,
        of = (image, hide_image) => header({ image, hide_image });
      same(of(png(96, 72)).src, png(96, 72), "its source");
      same([of(png(9, 9), true).hidden, of(png(9, 9), "yes").hidden], [true, false], "hidden");
      for (const bad of [
        png(513, 9),
        png(9, 60000),
        png(0, 9),
        png(9, 9) + "\u0022 onerror=",
        png(9, 9).replace("png", "svg+xml"),
        "data:image/png;base64," + btoa("<svg onload=alert(1)>".repeat(4)),
        "https://example.org/a.png",
        "javascript:alert(1)",
        png(9, 9).slice(0, 40),
        png(9, 9) + "A".repeat(70000),
        7,
        null,
        ["a"],
      ])
        same(of(bad), null, String(bad).slice(0, 40));
      same([header(undefined), header(3)], [null, null], "no request");
    },
    "lanes may come woven or one after another"(SV, fx) {
      same(hashOf(SV, SV.fold.fold(fx.woven)), hashOf(SV, SV.fold.fold(fx.race)), "woven");
    },
    "a scrubbed view equals a fold of the prefix"(SV, fx) {
      const full = SV.fold.fold(fx.race);
      for (const id of full.order) {
        const lane = full.lanes.get(id),
          mine = fx.race.filter((r) => r.lane === id);
        for (let k = 0; k < lane.committed; k++) {
          const cut = mine.filter((r) => (r.round === undefined ? r.type !== "done" : r.round <= k));
          const prefix = SV.fold.fold(cut).lanes.get(id);
          same(
            SV.fold.picture(lane, { round: k, phase: 4 }),
            SV.fold.picture(prefix, { round: k, phase: 4 }),
            "lane " + id + " round " + k,
          );
        }
      }
    },
    "a cursor from the left and from the right shows the same"(SV, fx) {
      const st = SV.fold.fold(fx.race),
        lane = st.lanes.get(1),
        left = [],
        right = [];
      for (let k = 0; k < lane.committed; k++)
        for (const phase of [1, 2, 3, 4]) left.push(SV.text.hash(SV.fold.picture(lane, { round: k, phase })));
      for (let k = lane.committed - 1; k >= 0; k--)
        for (const phase of [4, 3, 2, 1]) right.push(SV.text.hash(SV.fold.picture(lane, { round: k, phase })));
      same(left, right.reverse(), "order of visits");
      for (let k = 0; k < lane.committed; k++)
        same(SV.fold.at(lane, { t: SV.fold.endOf(lane, k) }).k, k + 1, "time cursor");
    },
    "records seen twice change nothing"(SV, fx) {
      const st = SV.fold.fold(fx.race),
        was = hashOf(SV, st);
      SV.fold.fold(fx.race, st);
      same(hashOf(SV, st), was, "twice");
      same(st.bad, 0, "bad records");
    },
    "text is the reference decode, token borders notwithstanding"(SV, fx) {
      for (const id of [0, 1])
        same(textOf(SV, SV.fold.fold(fx.unicode.records).lanes.get(id)), fx.unicode.text, "lane " + id);
    },
    "controls and overrides are named, never passed on"(SV, fx) {
      const st = SV.fold.fold(fx.hostile.records);
      for (const id of st.order) {
        const all = st.lanes.get(id).tokens.flatMap((t) => t.parts);
        const raw = all.filter((p) => typeof p === "string").join("");
        ok(!/[\u0000-\u0008\u202a-\u202e\u2066-\u2069\u200b]/.test(raw), "a control character reached the page");
        ok(all.some((p) => p.c === "U+202E") && all.some((p) => p.c === "U+0007"), "named");
        const clean = fx.hostile.text.replace(/[\u0000-\u0008\u202a-\u202e\u2066-\u2069\u200b]/g, "");
        same(raw, clean, "the rest is untouched");
      }
    },
    "bytes: cut, broken and lone"(SV) {
      const D = SV.text.decode,
        b = (...x) => x;
      same(D(b(0xe4, 0xb8)), { parts: [], carry: [0xe4, 0xb8] }, "open");
      same(D(b(0xe4, 0xb8, 0xad)), { parts: ["\u4e2d"], carry: [] }, "closed");
      same(SV.text.alone(b(0xf0, 0x9f)), [{ c: "\\xF0" }, { c: "\\x9F" }], "alone");
      same(D(b(0x80, 0x41, 0xff)).parts, [{ c: "\\x80" }, "A", { c: "\\xFF" }], "lone");
      same(D(b(0xe4, 0x41)).parts, [{ c: "\\xE4" }, "A"], "broken");
      same(
        D(b(0xed, 0xa0, 0x80)).parts.every((p) => p.c),
        true,
        "surrogate",
      );
      same(
        D(b(0xc0, 0xaf)).parts.every((p) => p.c),
        true,
        "overlong",
      );
      same(SV.text.bytesOf("%%%not base64"), [], "bad base64");
    },
    "hostile records are dropped one by one"(SV) {
      const bad = [
        null,
        7,
        {},
        { type: "draft" },
        { type: "draft", lane: 0, seq: 0, round: 1e9, nodes: [] },
        { type: "commit", lane: 0, seq: 1, round: -1 },
        { type: "judge", lane: 0, seq: 2, round: 0, node: 99, verdict: "accepted" },
        { type: "text", lane: 0, seq: 3, round: 0, pieces: 7 },
        { type: "vocab", lane: 0, seq: 4, tokens: { __proto__: "x", constructor: "eA==" } },
        { type: "__proto__", lane: 0, seq: 5 },
        { type: "toString", lane: 0, seq: 6 },
        {
          type: "draft",
          lane: 0,
          seq: 7,
          round: 0,
          nodes: [
            { id: 0, parent: 5, tok: 1 },
            { id: 1, parent: 1, tok: 1 },
            { id: 2, parent: 0, tok: 1 },
          ],
        },
        { type: "commit", lane: 0, seq: 8, round: 0, path: [0, 77, "x"], tail: null, n_new: "9" },
        { type: "text", lane: 0, seq: 9, round: 0, pieces: [{ tok: 1, b: 7 }, {}] },
      ];
      const st = SV.fold.fold(bad);
      for (const id of st.order) SV.fold.picture(st.lanes.get(id), "end");
      ok(st.bad >= 5, "counted");
      ok({}.x === undefined, "no prototype was touched");
    },
    "lenses are folded with their round, from whichever side one comes"(SV, fx) {
      const want = hashOf(SV, SV.fold.fold(fx.lensed)),
        lane = SV.fold.fold(fx.lensed).lanes.get(1);
      ok(lane.lens > 20, "lens records");
      for (let seed = 11; seed <= 14; seed++) {
        const d = uniforms(seed),
          st = SV.fold.initial();
        for (let i = 0; i < fx.lensed.length;) {
          const n = 1 + Math.floor(d() * 30);
          SV.fold.fold(fx.lensed.slice(i, i + n), st);
          i += n;
        }
        same(hashOf(SV, st), want, "chunks " + seed);
      }
      const pictures = (ks) => ks.map((k) => [k, SV.text.hash(SV.fold.picture(lane, { round: k, phase: 4 }))]);
      const ks = Array.from({ length: lane.committed }, (_, k) => k);
      same(pictures(ks), pictures([...ks].reverse()).reverse(), "either side");
      for (const k of ks) {
        const cut = fx.lensed.filter((r) => r.lane === 1 && (r.round === undefined ? r.type !== "done" : r.round <= k));
        same(
          SV.fold.picture(SV.fold.fold(cut).lanes.get(1), { round: k, phase: 4 }).shown[k].lens,
          SV.fold.picture(lane, { round: k, phase: 4 }).shown[k].lens,
          "round " + k,
        );
      }
    },
    "spread: one run has none, few runs show all, many their middle half"(SV) {
      const S = SV.metrics.spreadOf,
        lane = (repeats) => ({ id: 0, committed: 0, rounds: [], done: { totals: { repeats } }, checks: [] });
      same(S([]), null, "none");
      same(S([5]), { runs: 1, middle: 5, low: 5, high: 5 }, "one");
      same(S([3, 1, 2]), { runs: 3, middle: 2, low: 1, high: 3 }, "three");
      same(S([1, 2, 3, 4, 5]), { runs: 5, middle: 3, low: 2, high: 4 }, "five");
      same(
        SV.metrics.runsOf(
          lane([{ tokens: 10, seconds: 2 }, { tokens: "x", seconds: 1 }, null, { tokens: 1, seconds: 0 }]),
        ),
        [5],
        "only what is a run",
      );
    },
    "metrics follow their definitions"(SV, fx) {
      const st = SV.fold.fold(fx.race),
        base = SV.metrics.baselineOf(st);
      for (const id of st.order) {
        const lane = st.lanes.get(id),
          m = SV.metrics.of(lane, lane.committed, base),
          w = fx.metrics[id];
        for (const k of Object.keys(w)) {
          const got = k === "by_position" ? m.per_position.map((p) => [p.tried, p.accepted]) : m[k];
          if (k === "parts") w[k].forEach((x, i) => ok(Math.abs(m.parts[i] - x) < 1e-9, "part " + i));
          else if (typeof w[k] === "number")
            ok(
              Math.abs(got - w[k]) < 1e-9 * Math.max(1, Math.abs(w[k])),
              k + " lane " + id + ": " + got + " is not " + w[k],
            );
          else same(got, w[k], k + " lane " + id);
        }
        same(m.agree, m.checked, "every verdict follows from its draw");
      }
    },
    "one sentence a round"(SV) {
      const round = (nodes, path, why, extra = {}) => ({
        i: 0,
        kind: "chain",
        nodes: Array.from({ length: nodes }, (_, i) => ({ id: i, parent: i - 1, kids: [] })),
        path,
        why,
        tests: [],
        judges: new Map(),
        commit: { n_new: path.length + 1, tail: {} },
        ...extra,
      });
      const lane = { header: { method: { key: "speculative" } } },
        say = (r) => SV.inspector.sentence(lane, r, 4);
      same(
        say(round(4, [0, 1, 2], "correction")),
        "The draft guessed 4 tokens; the target kept 3 and corrected the 4th: 4 tokens from one pass.",
        "correction",
      );
      same(
        say(round(4, [0, 1, 2, 3], "bonus")),
        "The draft guessed 4 tokens; the target kept all 4 and added one of its own: 5 tokens from one pass.",
        "bonus",
      );
      same(
        say(round(3, [], "correction")),
        "The draft guessed 3 tokens; the target rejected the first and wrote its own token instead.",
        "none",
      );
      same(
        say(round(1, [0], "bonus")),
        "The draft guessed 1 token; the target kept it and added one of its own: 2 tokens from one pass.",
        "one",
      );
      ok(/corrected the 3rd/.test(say(round(5, [0, 1], "correction"))), "3rd");
    },
  });
})();
