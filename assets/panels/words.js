/* What a person reads, and sums over lists: for every panel, without a page. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  /* A person reads: control and bidirectional characters of a trace, a catalogue or a server are named, never obeyed. */
  const say = (s, most = 2000) => SpecViz.text.joined(SpecViz.text.visible(String(s ?? ""))).slice(0, most);
  const clamp = (x, lo, hi) => Math.min(hi, Math.max(lo, x));
  const finite = (x) => typeof x === "number" && Number.isFinite(x);
  /* The numbers somebody typed, with commas or spaces between them. */
  const numbers = (typed, most) =>
    typed
      .split(/[,;\s]+/)
      .filter(Boolean)
      .map(Number)
      .filter(finite)
      .slice(0, most);
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  const mean = (list) => (list.length ? sum(list) / list.length : null);
  function median(list) {
    if (!list.length) return null;
    const s = [...list].sort((a, b) => a - b),
      m = s.length >> 1;
    return s.length % 2 ? s[m] : (s[m - 1] + s[m]) / 2;
  }

  P.words = { say, clamp, finite, numbers, sum, mean, median };
})();
