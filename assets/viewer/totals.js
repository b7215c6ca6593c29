/* Running totals of a lane, as the engine counts them: every test is a try, depth by depth. What a round adds by depth stays with
   the round (`seen`) and is summed where it is asked for: a copy of it a round would be rounds times depth in all. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { num } = SV.shape;
  const TAIL = {
    bonus: "bon",
    correction: "cor",
    accepted: "acc",
  }; /* every other tail is the target's (or a rule's) own: neutral */

  /** @returns {Totals} */
  const zero = () => ({
    rounds: 0,
    tokens: 0,
    passes: 0,
    drafted: 0,
    accepted: 0,
    tried: 0,
    rejected: 0,
    skipped: 0,
    examined: 0,
    bonus: 0,
    correction: 0,
    plain: 0,
    agree: 0,
    checked: 0,
    rows: 0,
    t: 0,
    seconds: 0,
    parts: [0, 0, 0, 0, 0],
  });

  /** @param {Round} r @param {Totals} before @param {boolean} timed */
  function totals(r, before, timed) {
    const s = { ...before };
    s.rounds++;
    s.tokens += r.commit.n_new;
    s.passes += r.passes;
    s.rows += r.rows;
    s.t = r.commit.t ?? before.t;
    if (!timed) s.seconds = null; /* a round without its timing: fall back on the clock */
    s.accepted += r.path.length + (r.why === "accepted" ? 1 : 0);
    for (const n of r.nodes) {
      if (n.probe) continue;
      s.drafted++;
      const j = r.judges.get(n.id);
      if (!j || j.verdict === "skipped") s.skipped++;
      else if (j.verdict === "rejected") s.rejected++;
    }
    const seen = new Map(),
      reached = new Set([-1, ...r.path]); /* tried: examined nodes whose parent was accepted, for every verifier */
    for (const j of r.trials) {
      const yes = j.verdict === "accepted",
        d = r.nodes[j.node].depth,
        tried = reached.has(r.nodes[j.node].parent);
      s.examined++;
      if (tried) s.tried++;
      if (num(j.u) !== null && num(j.a) !== null) {
        s.checked++;
        if (j.u < j.a === yes) s.agree++;
      }
      if (tried) seen.set(d, seen.get(d) || false || yes);
    }
    r.seen = seen;
    if (r.why !== "accepted") s[TAIL[r.why] ? r.why : "plain"]++;
    return s;
  }

  /* [[tried, accepted], ...] by depth over the first k rounds; it goes on from where it was last asked for. */
  /** @param {Lane} lane @param {number} k */
  function byDepth(lane, k) {
    const kept = lane.byDepth && lane.byDepth.k <= k ? lane.byDepth : { k: 0, pos: [] };
    for (; kept.k < k; kept.k++)
      for (const [d, yes] of lane.rounds[kept.k].seen || []) {
        while (kept.pos.length < d) kept.pos.push([0, 0]);
        kept.pos[d - 1][0]++;
        if (yes) kept.pos[d - 1][1]++;
      }
    lane.byDepth = kept;
    return kept.pos;
  }

  SV.totals = { TAIL, zero, totals, byDepth };
})();
