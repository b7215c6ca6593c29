/* The dial under the headline: what it asks for, and what it promises by the formula. */
(() => {
  "use strict";
  const { same, ok } = globalThis.SPECVIZ_TOOLS;
  const SET = { prompt: "p", methods: ["a", "oracle", "b", "c"], knobs: { a: { gamma: 3 }, oracle: { gamma: 9 } }, length: 48 };

  Object.assign(globalThis.SPECVIZ_CASES, {
    "the dial runs the same request beside the oracle as it is set, and no second oracle"(SV) {
      const oracle = { method: "oracle", knobs: { acceptance: 0.8, gamma: 3 } },
        knobs = { a: { gamma: 3 } };
      same(SV.dial.again(SET, 0.8, 3), { ...SET, methods: ["a", "b", oracle], knobs, tab: "race" }, "asked");
      same(SV.dial.again({ ...SET, methods: [oracle] }, 0.5, 4).methods.length, 1, "an oracle with knobs of its own");
    },
    "tokens a pass go by the formula"(SV) {
      same(SV.dial.tokensPerPass(1, 4), 5, "all accepted");
      ok(Math.abs(SV.dial.tokensPerPass(0.8, 4) - (1 - 0.8 ** 5) / 0.2) < 1e-12, "geometric sum");
    },
  });
})();
