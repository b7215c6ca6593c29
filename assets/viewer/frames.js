/* Live frames, NDJSON: {"s": number, "e": [records], "new"?, "snap"?, "status"?}. The value is a sliding window, so most
   lines were seen before; a missing number is a gap, which the next snapshot mends. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));

  const intake = () => ({
    lines: new Set(),
    last: -1,
    lost: 0,
    gaps: 0,
    run: "",
    runs: new Set(),
    seen: 0,
    jump: 0,
    open: false,
  });
  const OVER = ["done", "stopped", "error"];

  /* Returns what to do, in order: [{kind: "new"} | {kind: "records", e} | {kind: "snap", e, mend} |
     {kind: "status", status, stale}]. */
  function take(box, text) {
    const acts = [],
      before = box.lines;
    box.lines = new Set();
    for (const line of String(text || "").split("\n")) {
      if (!line.trim()) continue;
      box.lines.add(line);
      if (before.has(line)) continue; /* read the last time: most of a window was, and reading is what it costs */
      let f;
      try {
        f = JSON.parse(line);
      } catch {
        acts.push({ kind: "bad" });
        continue;
      }
      if (f && typeof f === "object" && Number.isInteger(f.s)) one(box, f, line, acts);
    }
    return acts;
  }

  function one(box, f, line, acts) {
    if (f.new) {
      const run = SV.text.hash(line);
      /* The first frame of this run, still in the window; or of an earlier one that was left, whose last update came late. */
      if (run === box.run || (box.runs.has(run) && f.s <= box.last)) return;
      box.runs.add(run);
      Object.assign(box, { run, last: f.s, lost: 0, jump: 0 });
      acts.push({ kind: "new" });
    } else {
      if (f.s <= box.last) return;
      /* A frame without records may stand before a new run, whose numbers begin higher: count its gap only
         when records follow. */
      box.jump += box.last >= 0 ? f.s - box.last - 1 : 0;
      box.last = f.s;
      if (box.jump > 0 && Array.isArray(f.e) && f.e.length) {
        if (box.run || box.records) {
          box.lost += box.jump;
          box.gaps++;
        }
        box.jump = 0;
      }
    }
    box.seen++;
    if (f.new) box.open = true;
    /* A run that ends without having written anything: what stands on the board is still the last one. */
    const stale = !box.open && !f.snap && OVER.includes(f.status?.state);
    if (f.snap) box.open = false;
    const e = Array.isArray(f.e) ? f.e : [];
    if (e.length) box.records = true;
    if (f.snap) {
      acts.push({ kind: "snap", e, mend: box.lost > 0, fresh: Boolean(f.new) });
      box.lost = 0;
    } else if (e.length) acts.push({ kind: "records", e });
    if (f.status) acts.push({ kind: "status", status: f.status, stale });
  }

  SV.frames = { intake, take };
})();
