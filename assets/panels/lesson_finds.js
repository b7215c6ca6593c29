/* Looking in a trace for what a lesson wants to show. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  /* Looking in a trace. Each returns {lane, round, node, phase} or null. */
  const drafting = (ls) => ls.filter((l) => !l.baseline && l.rounds.some((r) => r.nodes.length));
  const chainOf = (ls) =>
    drafting(ls).find((l) => l.rounds.every((r) => r.nodes.every((n) => n.parent === n.id - 1 || n.parent < 0))) ||
    drafting(ls)[0] ||
    null;
  const treeOf = (ls) =>
    drafting(ls).find((l) => l.rounds.some((r) => r.nodes.filter((n) => n.parent < 0).length > 1)) || null;
  const plainOf = (ls) => ls.find((l) => l.baseline) || null;
  const pick = (l, ok) => {
    const list = l ? l.rounds.filter(ok) : [];
    return list[Math.floor(list.length / 3)] || null;
  };
  const at = (l, r, more) => (l && r ? { lane: l.id, round: r.i, ...more } : null);
  const full = (l) =>
    pick(l, (r) => r.why === "bonus" && r.path.length >= Math.min(3, r.depth) && r.path.length > 0) ||
    pick(l, (r) => r.path.length > 0);
  const refused = (l) =>
    pick(l, (r) => r.why === "correction" && r.path.length > 0) || pick(l, (r) => r.why === "correction");
  const rejectedNode = (r) => {
    const t = r && r.raw.trials.find((j) => j.verdict === "rejected");
    return t ? t.node : "tail";
  };
  const tau = (l) => (l.tokens / Math.max(1, l.metrics.passes ?? l.rounds.length)).toFixed(2);
  const ms = (s) => (s * 1e3).toFixed(1) + " ms";
  const word = (l, tok) => "\u201c" + SpecViz.fold.label(l.folded, tok, 16) + "\u201d";

  P.finds = { drafting, chainOf, treeOf, plainOf, pick, at, full, refused, rejectedNode, tau, ms, word };
})();
