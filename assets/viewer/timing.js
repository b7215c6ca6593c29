/* Which measured times may be trusted. Everything that shows a time, a speed or a speed-up asks here.

   A turn is one measured run of every lane (the race itself, then its repeats); the i-th runs of two lanes are a pair. A turn is
   disturbed where other work took the processor: the trace says so (a `busy` check of the race, `busy` of a repeat), or one lane
   needed more than SLOW times the median time of its own runs. Disturbed turns are left out and counted. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const SLOW = 1.5,
    TURNS = 100,
    SLACK = 1.15; /* of the accepted length, that a measured speed-up may exceed it by */
  /** @param {unknown} x */
  const finite = (x) => typeof x === "number" && Number.isFinite(x);
  /** @param {number | null} a @param {number} b */
  const ratio = (a, b) => (b > 0 && a !== null ? a / b : null);

  /* Engine seconds after the prefill, at k committed rounds: the rounds' own timings, as the engine adds them up; at the
     end of a run its own total; without timings the clock. */
  /** @param {Lane} lane @param {number} k */
  function decodeSeconds(lane, k) {
    const sum = SV.fold.sumAt(lane, k);
    if (!sum.tokens) return null;
    const whole = lane.done && k >= lane.committed && lane.done.totals ? lane.done.totals.seconds : null;
    if (finite(whole) && whole > 0) return whole;
    if (lane.rounds[k - 1].timing && sum.seconds > 0) return sum.seconds;
    const from = lane.prefill ? lane.prefill.t1 : 0;
    return sum.t > from ? sum.t - from : null;
  }
  /** @param {Lane} lane @param {number} k */
  const ownRate = (lane, k) => ratio(SV.fold.sumAt(lane, k).tokens, decodeSeconds(lane, k));

  /** @param {number[]} list */
  const middle = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

  /** @param {Lane} lane */
  const repeatsOf = (lane) => {
    const list = lane.done && lane.done.totals && lane.done.totals.repeats;
    return (Array.isArray(list) ? list.slice(0, TURNS) : []).filter(
      (r) => r && finite(r.tokens) && finite(r.seconds) && r.seconds > 0 && r.tokens > 0,
    );
  };
  /* Tokens per second of every measured run of this lane: its own, then `totals.repeats [{tokens, seconds, busy?}]`. */
  /** @param {Lane} lane */
  function runsOf(lane) {
    const own = ownRate(lane, lane.committed);
    return [...(own === null ? [] : [own]), ...repeatsOf(lane).map((r) => r.tokens / r.seconds)];
  }

  /** @param {Lane} lane */
  const busy = (lane) => lane.checks.some((c) => c.kind === "busy");
  /** @param {Lane} l */
  const counted = (l) => Boolean(l.done && !l.error && l.committed) && !(l.header && l.header.clock === "client");

  /* {kept: indices of the undisturbed turns that all these lanes have, lost, turns}. Where every turn was disturbed the first
     stands, and doubt() says so. */
  /** @param {Lane[]} lanes */
  function turns(lanes) {
    const mine = lanes.filter(counted).map((l) => ({ l, list: runsOf(l), repeats: repeatsOf(l) })),
      n = mine.length ? Math.min(...mine.map((x) => x.list.length)) : 0;
    const disturbed = ({ l, list, repeats }, i) =>
      i === 0 ? busy(l) || late(list, i) : repeats[i - 1]?.busy === true || late(list, i);
    const late = (list, i) => n > 2 && list[i] * SLOW < middle(list.slice(0, n));
    const kept = Array.from({ length: n }, (_, i) => i).filter((i) => !mine.some((x) => disturbed(x, i)));
    return { kept: kept.length ? kept : n ? [0] : [], lost: n - kept.length, turns: n };
  }
  /* The speeds of one lane in these turns; without turns, all of them. */
  /** @param {number[]} list @param {number[] | null} kept */
  const take = (list, kept) => (kept ? kept.map((i) => list[i]).filter((x) => x !== undefined) : list);

  /* Why no time of these lanes counts, as the identifier of a message, or "". While a run is in flight a `busy` check is
     enough. */
  /** @param {Lane[]} lanes */
  function doubt(lanes) {
    const { lost, turns: n } = turns(lanes),
      running = lanes.some((l) => !l.done && !l.error);
    return lanes.some(busy) && (running || lost === n) ? "timing.busy" : n > 0 && lost === n ? "timing.busy" : "";
  }
  /* The turns that were left out, as a sentence, or "". */
  /** @param {Lane[]} lanes */
  function lostSentence(lanes) {
    const { lost, turns: n } = turns(lanes);
    return lost && lost < n ? SV.messages.say("timing.lost", { lost: String(lost), turns: String(n) }) : "";
  }

  /* Whether a speed-up over plain decoding can come from this many tokens per target pass: a pass that verifies costs at least
     what a pass of plain decoding costs. */
  /** @param {number | null} speedup @param {number | null} tokensPerPass */
  const plausible = (speedup, tokensPerPass) =>
    !finite(speedup) || !finite(tokensPerPass) || speedup <= Math.max(1, tokensPerPass) * SLACK;

  /* The best of measured settings [{low, high, value}], or null where the runner-up's spread reaches into its own. */
  /** @type {Viewer["timing"]["clearBest"]} */
  const clearBest = (list) => {
    const s = list.filter((x) => finite(x.value)).sort((a, b) => b.value - a.value);
    if (s.length < 2) return s[0] ?? null;
    const low = finite(s[0].low) ? s[0].low : s[0].value * 0.95;
    return s.slice(1).every((x) => (finite(x.high) ? x.high : x.value * 1.05) < low) ? s[0] : null;
  };

  /* Sentences about rows that a measurement of the Lab returned: how many of its runs were left out, and that the other times do
     not count or cannot be, where `doubtful` says so of a row. Ends with a space, or is "". */
  /** @type {Viewer["timing"]["remarks"]} */
  function remarks(rows, doubtful, lost, runs) {
    const say = SV.messages.say,
      struck = rows.filter((r) => doubtful(r) && !r.busy).length,
      out = [];
    if (rows.some((r) => r.busy)) out.push(say("timing.busy"));
    else if (finite(lost) && lost) out.push(say("timing.lost", { lost: String(lost), turns: String(runs) }));
    if (struck) out.push(say("timing.struck", { struck: String(struck), rows: String(rows.length) }));
    return out.map((line) => line + " ").join("");
  }

  SV.timing = { decodeSeconds, ownRate, runsOf, busy, turns, take, doubt, lostSentence, plausible, clearBest, remarks };
})();
