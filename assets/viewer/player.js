/* Playback: how long each phase of a round is shown, and the race's shared clock. It only moves a cursor. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const RACE_SECONDS = 22;
  const PATCHES = 3,
    SCALE = 1500; /* patches of a picture come this much faster than words; a whole scale stands this many ms */

  /* Milliseconds for one phase of a round at speed 1; at true time, what the engine took. */
  function phaseTime(lane, i, phase, speed) {
    const r = lane.rounds[i];
    if (!r) return 0;
    if (speed === 0) return trueTime(lane, r, i, phase);
    const output = SV.output.of(lane);
    if (output.grids && !r.nodes.length) return phase === 4 ? SCALE / speed : 0;
    if (output.columns) speed *= PATCHES;
    if (!r.nodes.length) return phase === 2 ? 360 : phase === 4 ? 420 : 0;
    const fail = r.tests.some((id) => r.judges.get(id).verdict === "rejected");
    return (
      {
        1: Math.min(900, 420 + 25 * r.nodes.length),
        2: 480,
        3: 420 + 110 * Math.min(8, r.tests.length) + (fail ? 480 : 0),
        4: 640,
      }[phase] / speed
    );
  }
  function trueTime(lane, r, i, phase) {
    const t0 = SV.fold.startOf(lane, i),
      end = SV.fold.endOf(lane, i),
      d1 = (r.draft && r.draft.t1) ?? t0,
      v1 = (r.verify && r.verify.t1) ?? d1;
    return 1e3 * Math.max(0, { 1: d1 - t0, 2: v1 - d1, 3: 0, 4: end - v1 }[phase] || 0);
  }

  /* Advance a Watch cursor {round, phase, left} by dt ms. Returns false at the end. */
  function watch(cur, lane, dt, speed) {
    cur.left = (cur.left ?? phaseTime(lane, cur.round, cur.phase, speed)) - dt;
    let guard = 0;
    while (cur.left <= 0 && guard++ < 4000) {
      if (cur.phase < 4) cur.phase++;
      else if (cur.round + 1 < lane.committed) {
        cur.round++;
        cur.phase = 1;
      } else {
        cur.left = 0;
        return false;
      }
      cur.left += phaseTime(lane, cur.round, cur.phase, speed);
    }
    return true;
  }

  /* How much slower than true time a race runs at speed 1, so that it lasts long enough to follow: 1, 2, 4, 8, 16, 32. */
  function slowdown(end) {
    let k = 1;
    while (end * k < RACE_SECONDS * 0.7 && k < 64) k *= 2;
    return k;
  }

  /* How many times longer round i is shown than the engine took for it. */
  function paceOf(lane, i, speed) {
    if (speed === 0) return 1;
    const took = 1e3 * ((SV.fold.endOf(lane, i) ?? 0) - SV.fold.startOf(lane, i)),
      shown = [1, 2, 3, 4].reduce((s, p) => s + phaseTime(lane, i, p, speed), 0);
    return took > 0 ? shown / took : null;
  }

  SV.player = { paceOf, watch, phaseTime, slowdown };
})();
