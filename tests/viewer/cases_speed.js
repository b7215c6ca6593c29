/* The statistic of speeds gives the same as Python's on the shared cases (tests/vectors/speed.json). */
(() => {
  "use strict";
  const { ok } = globalThis.SPECVIZ_TOOLS;
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
  });
})();
