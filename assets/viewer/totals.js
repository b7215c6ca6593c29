/* Running totals of a lane, as the engine counts them: every test is a try, depth by depth. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { num } = SV.shape;
  const TAIL = {
    bonus: "bon",
    correction: "cor",
    accepted: "acc",
  }; /* every other tail is the target's (or a rule's) own: neutral */

  const zero = () => ({
    rounds: 0,
    tokens: 0,
    passes: 0,
    drafted: 0,
    accepted: 0,
    tried: 0,
    rejected: 0,
    skipped: 0,
    bonus: 0,
    correction: 0,
    plain: 0,
    agree: 0,
    checked: 0,
    rows: 0,
    pos: [],
    t: 0,
    seconds: 0,
    parts: [0, 0, 0, 0, 0],
  });

  function totals(r, before, timed) {
    const s = { ...before, pos: before.pos.map((p) => p.slice()) };
    s.rounds++;
    s.tokens += r.commit.n_new;
    s.passes += r.passes;
    s.rows += r.fed;
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
    const seen = new Map();
    for (const j of r.trials) {
      const yes = j.verdict === "accepted",
        d = r.nodes[j.node].depth;
      s.tried++;
      if (num(j.u) !== null && num(j.a) !== null) {
        s.checked++;
        if (j.u < j.a === yes) s.agree++;
      }
      seen.set(d, seen.get(d) || false || yes);
    }
    for (const [d, yes] of seen) {
      while (s.pos.length < d) s.pos.push([0, 0]);
      s.pos[d - 1][0]++;
      if (yes) s.pos[d - 1][1]++;
    }
    if (r.why !== "accepted") s[TAIL[r.why] ? r.why : "plain"]++;
    return s;
  }

  SV.totals = { TAIL, zero, totals };
})();
