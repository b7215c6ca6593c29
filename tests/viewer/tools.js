/* What every file of cases uses; a case throws where it does not hold. */
(() => {
  "use strict";
  const same = (a, b, what) => {
    const x = JSON.stringify(a),
      y = JSON.stringify(b);
    if (x !== y) throw new Error(what + "\n" + String(x).slice(0, 600) + "\n" + String(y).slice(0, 600));
  };
  const ok = (x, what) => {
    if (!x) throw new Error(what);
  };
  const hashOf = (SV, st, cur = "end") => SV.text.hash(st.order.map((id) => SV.fold.picture(st.lanes.get(id), cur)));
  /* A small seeded generator: the chunks differ, the test does not. */
  const uniforms = (seed) => () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };

  globalThis.SPECVIZ_TOOLS = { same, ok, hashOf, uniforms };
  globalThis.SPECVIZ_CASES = {};
})();
