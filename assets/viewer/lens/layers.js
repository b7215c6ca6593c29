/* A draft from a part of the target itself: which layers ran, which were left out, which work the target can use again. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { el, count } = SV.dom;
  const { int, ints, num, say, short } = SV.lens.tools;

  /* `skipped` lists sublayers: 2 i is the attention of layer i, 2 i + 1 its feed-forward part. */
  function draw(host, notes, c) {
    const d = notes[notes.length - 1] || {}, n = Math.min(128, Math.max(0, int(d.count, 0))), off = new Set(ints(d.skipped, 512)), reused = int(d.reused, 0);
    host.append(say("The draft ran " + count(2 * n - [...off].filter((x) => x < 2 * n).length, "half layer") + " of " + 2 * n + ". ", reused ? "The first " + count(reused, "layer") + " are not computed again when the target checks. " : "", num(d.matched) === null ? "" : "Agreement while searching: " + short(d.matched) + (Number.isInteger(d.trials) ? " after " + count(d.trials, "trial") : "") + "."));
    const row = (name, k) => [el("span", { class: "lrow" }, name), el("span", { class: "lcells" }, Array.from({ length: n }, (_, i) => el("i", { class: (off.has(2 * i + k) ? "off" : "ran") + (i < reused ? " reused" : ""), title: "layer " + (i + 1) + (off.has(2 * i + k) ? ": skipped" : ": ran") })))];
    host.append(el("div", { class: "llayers", role: "img", "aria-label": "Layers that ran in the draft" }, row("attention", 0), row("feed-forward", 1)), say("Filled: ran in the draft. Hollow: skipped. The target runs all of them."));
  }

  SV.lens.layers = { title: "Layers", draw };
})();
