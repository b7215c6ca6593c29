/* What comes in: live frames, and an imported file. */
(() => {
  "use strict";
  const { same, ok, hashOf } = globalThis.SPECVIZ_TOOLS;

  Object.assign(globalThis.SPECVIZ_CASES, {
    "frames: windows lose nothing, seen numbers are dropped"(SV, fx) {
      const box = SV.frames.intake(),
        st = SV.fold.initial();
      let news = 0;
      for (const v of fx.frames)
        for (const a of SV.frames.take(box, v)) {
          if (a.kind === "new") news++;
          if (a.e) SV.fold.fold(a.e, st);
        }
      same([news, box.lost, box.gaps], [1, 0, 0], "counts");
      same(hashOf(SV, st), hashOf(SV, SV.fold.fold(fx.race)), "state");
    },
    "frames: a gap is counted and the snapshot mends it"(SV, fx) {
      const box = SV.frames.intake();
      const few = fx.frames.slice(0, 3).concat(fx.frames.slice(-2));
      const acts = few.flatMap((v) => SV.frames.take(box, v));
      ok(box.gaps >= 1, "gap");
      const snap = acts.find((a) => a.kind === "snap");
      ok(snap && snap.mend && box.lost === 0, "mended");
      same(hashOf(SV, SV.fold.fold(snap.e)), hashOf(SV, SV.fold.fold(fx.race)), "state");
    },
    "frames: a new run begins higher, after frames that only tell its state"(SV) {
      const box = SV.frames.intake(),
        take = (f) => SV.frames.take(box, JSON.stringify(f));
      take({ s: 1000, new: true, e: [{ type: "header", lane: 0, seq: 0 }] });
      take({ s: 1001, e: [{ type: "done", lane: 0, seq: 1 }] });
      take({ s: 9000, e: [], status: { state: "queued", text: "" } });
      const acts = take({ s: 9001, new: true, e: [{ type: "header", lane: 0, seq: 0 }] });
      same([acts.map((a) => a.kind), box.lost, box.gaps], [["new", "records"], 0, 0], "no gap");
      same(take({ s: 9001, new: true, e: [{ type: "header", lane: 0, seq: 0 }] }), [], "seen");
      take({ s: 9003, e: [{ type: "done", lane: 0, seq: 1 }] });
      same(box.lost, 1, "a real gap");
    },
    "frames: the last update of a run that was left does not bring it back"(SV) {
      const box = SV.frames.intake(),
        one = JSON.stringify({ s: 1, new: true, run: "a", e: [{ type: "header", lane: 0, seq: 0 }] }),
        two = JSON.stringify({ s: 2, e: [{ type: "draft", lane: 0, seq: 1 }] });
      SV.frames.take(box, one);
      SV.frames.take(box, JSON.stringify({ s: 4, new: true, run: "b", e: [], status: { state: "idle", text: "" } }));
      same(SV.frames.take(box, one + "\n" + two), [], "late");
      same(SV.frames.take(box, JSON.stringify({ s: 5, new: true, run: "c", e: [] })).map((a) => a.kind), ["new"], "the next run");
    },
    "frames: rubbish is not fatal"(SV) {
      const box = SV.frames.intake();
      for (const v of [
        "",
        "null",
        "[]",
        "{",
        '{"s":"x"}',
        "7",
        null,
        undefined,
        '{"s":1,"e":7}',
        '{"s":2,"e":[],"status":7}',
      ])
        SV.frames.take(box, v);
      same(box.lost, 0, "nothing lost");
    },
    "an imported file is read or refused with a sentence"(SV, fx) {
      const text = fx.race.map((r) => JSON.stringify(r)).join("\n"),
        R = SV.reader.read;
      same(R(text).records.length, fx.race.length, "read");
      same(R(fx.race).records.length, fx.race.length, "records");
      for (const bad of [
        "",
        "x",
        "7",
        null,
        {},
        text.slice(0, text.length - 3),
        text.replace("specviz-trace/1", "specviz-trace/2"),
        text + "\n" + JSON.stringify(fx.race[0]),
        text.replace('"seq":5', '"seq":-5'),
      ]) {
        const { why, records } = R(bad);
        ok(
          typeof why === "string" && /^[A-Z].*\.$/.test(why) && records === undefined,
          "refused: " + String(bad).slice(0, 40) + " " + why,
        );
      }
    },
  });
})();
