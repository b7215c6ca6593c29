/* A draft of another vocabulary learns the target's words: what its cache knows when they come, and how much passes. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { int, ints, say, line, short } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      fresh = ints(d.tokens, 12).map((tok) => c.label(tok, 12));
    host.append(
      say(
        "The draft knows how it spells " +
          count(int(d.known, 0), "token") +
          " of the target that it has in several pieces only. This round wrote " +
          count(int(d.lacking, 0), "such token") +
          ", " +
          int(d.hits, 0) +
          " known before" +
          (fresh.length ? "; new: " + fresh.join(", ") : "") +
          ". It proposed " +
          int(d.merged, 0) +
          " of " +
          count(int(d.drafted, 0), "token") +
          " put together from pieces; " +
          int(d.accepted, 0) +
          " were kept.",
      ),
      say(
        "The draft has learned " +
          count(int(d.updates, 0), "time") +
          "; " +
          int(d.waiting, 0) +
          " of " +
          int(d.every, 0) +
          " written tokens are gathered for the next.",
      ),
    );
    const sum = { lacking: 0, hits: 0 },
      hits = [],
      passed = [];
    let held = null; // as a moving mean: single rounds are noise
    for (const { round, data } of c.history()) {
      const drafted = int(data && data.drafted, 0);
      sum.lacking += int(data && data.lacking, 0);
      sum.hits += int(data && data.hits, 0);
      if (sum.lacking) hits.push([round, sum.hits / sum.lacking]);
      if (!drafted) continue;
      const share = int(data.accepted, 0) / drafted;
      held = held === null ? share : held + 0.2 * (share - held);
      passed.push([round, held]);
    }
    if (passed.length < 2) return;
    const series = [{ points: passed, end: "kept " + short(held) }];
    if (hits.length)
      series.push({ points: hits, cls: "thin", step: true, end: "known " + short(hits[hits.length - 1][1]) });
    host.append(
      say(
        "Line: share of the drafted tokens that were kept. Thin line: share of such tokens that the cache knew, so far.",
      ),
    );
    line(host, { name: "Acceptance and cache hits over the rounds", width: c.width, series, most: 1, right: 110 });
  }

  SV.lens.ngrams = { title: "The target's words", draw };
})();
