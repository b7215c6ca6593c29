/* The statistic of speeds, and the judge of a race, give the same as Python's on the shared cases (tests/vectors/speed.json and
   races.json). */
(() => {
  "use strict";
  const { ok, same } = globalThis.SPECVIZ_TOOLS;
  const near = (x, y) => (typeof y === "number" ? Math.abs(x - y) <= 1e-9 * Math.max(1, Math.abs(y)) : x === y);
  const side = (fields, { rounds, repeats }, SV) => {
    const list = rounds.map((row) => Object.fromEntries(fields.map((name, i) => [name, row[i]]))),
      steady = SV.speed.steady(list),
      seconds = steady.seconds.reduce((a, b) => a + b, 0),
      passes = list.reduce((n, r) => n + r.passes, 0);
    return {
      steady,
      runs: [
        ...(steady.tokens && seconds > 0 ? [{ tokens: steady.tokens, seconds }] : []),
        ...repeats.map(([tokens, s]) => ({ tokens, seconds: s })),
      ],
      tokensPerPass: passes ? steady.tokens / passes : null,
    };
  };
  Object.assign(globalThis.SPECVIZ_CASES, {
    "speeds are the same as in Python"(SV, fx) {
      ok(fx.speed.cases.length > 10, "cases");
      for (const { name, plain, ours, speed } of fx.speed.cases) {
        const found = SV.speed.speedup(side(fx.speed.fields, plain, SV), side(fx.speed.fields, ours, SV));
        for (const [key, value] of Object.entries(speed)) ok(near(found[key], value), `${name}: ${key} ${found[key]} ${value}`);
      }
    },
    "a race ends as Python's judge says"(SV, fx) {
      ok(fx.races.length > 10, "cases");
      for (const { name, records, winner, order, speeds } of fx.races) {
        const lanes = [...SV.fold.fold(records).lanes.values()],
          local = lanes.filter((l) => !SV.serverFacts.is(l)),
          key = (l) => SV.timing.keyOf(l),
          plain = lanes.find((l) => key(l) === "autoregressive"),
          runs = SV.metrics.common(local.filter((l) => !SV.metrics.isBound(l))),
          figures = local.map((l) => [l, SV.metrics.of(l, l.committed, plain, runs)]),
          found = SV.verdict.verdict(lanes);
        same(found.sure ? key(found.winner) : null, winner, name + ": winner");
        const ranked = figures.filter(([l]) => !SV.metrics.isBound(l));
        ranked.sort(([, a], [, b]) => b.tokens_per_second - a.tokens_per_second);
        same(
          ranked.map(([l]) => key(l)),
          order,
          name + ": order",
        );
        for (const [l, m] of figures)
          ok(near(l === plain ? 1 : m.walltime_speedup, speeds[key(l)]), `${name}: ${key(l)} ${m.walltime_speedup} ${speeds[key(l)]}`);
      }
    },
  });
})();
