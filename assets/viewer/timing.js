/* The measured times of the lanes, as all panels show them. The statistic is in speed.js: interrupted passes are replaced, and a
   speed-up has an interval. Only where that is wider than a factor of two is no speed named. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { speedup, steady, isBusy, CLOSE, SLACK } = SV.speed;
  const TURNS = 100,
    BASELINE = "autoregressive";
  /** @param {Lane} lane */
  const keyOf = (lane) => (lane.header && lane.header.method && lane.header.method.key) || "";
  /** @param {Lane} lane */
  const isBaseline = (lane) => keyOf(lane) === BASELINE;
  /** @param {unknown} x */
  const finite = (x) => typeof x === "number" && Number.isFinite(x);
  /** @param {number | null} a @param {number} b */
  const ratio = (a, b) => (b > 0 && a !== null ? a / b : null);

  /** @type {WeakMap<Lane, {key: string, rounds: any[], steady: any}>} */
  const kept = new WeakMap();
  /* The rounds of a lane with their durations, and what speed.js makes of them; rounds end at the first without a timing. */
  /** @param {Lane} lane */
  function timesOf(lane) {
    const last = lane.rounds[lane.committed - 1],
      key = lane.committed + "/" + Boolean(last?.timing) + "/" + lane.seen,
      known = kept.get(lane);
    if (known?.key === key) return known;
    const rounds = [];
    for (const r of lane.rounds.slice(0, lane.committed)) {
      if (!r.timing?.parts || !r.commit) break;
      const [draft, verify, ...rest] = r.timing.parts;
      rounds.push({
        tokens: r.commit.n_new,
        passes: r.passes,
        rows: r.rows,
        verify,
        nodes: r.nodes.length,
        depth: r.nodes.reduce((most, n) => Math.max(most, n.depth), 0),
        draft,
        rest: rest.reduce((sum, x) => sum + x, 0),
      });
    }
    const found = { key, rounds, steady: steady(rounds) };
    kept.set(lane, found);
    return found;
  }
  /* Engine seconds after the prefill, at k committed rounds, interrupted passes replaced; without timings the clock. */
  /** @param {Lane} lane @param {number} k */
  function decodeSeconds(lane, k) {
    const sum = SV.fold.sumAt(lane, k);
    if (!sum.tokens) return null;
    const { rounds, steady: own } = timesOf(lane);
    if (k <= rounds.length) {
      const seconds = own.seconds.slice(0, k).reduce((a, b) => a + b, 0);
      if (seconds > 0) return seconds;
    }
    const whole = lane.done && k >= lane.committed && lane.done.totals ? lane.done.totals.seconds : null;
    if (finite(whole) && whole > 0) return whole;
    const from = lane.prefill ? lane.prefill.t1 : 0;
    return sum.t > from ? sum.t - from : null;
  }
  /** @param {Lane} lane @param {number} k */
  const ownRate = (lane, k) => ratio(SV.fold.sumAt(lane, k).tokens, decodeSeconds(lane, k));

  /** @param {Lane} lane */
  const repeatsOf = (lane) => {
    const list = lane.done && lane.done.totals && lane.done.totals.repeats;
    return (Array.isArray(list) ? list.slice(0, TURNS) : []).filter(
      (r) => r && finite(r.tokens) && finite(r.seconds) && r.seconds > 0 && r.tokens > 0,
    );
  };
  /* {tokens, seconds} of every measured run of this lane: its own, then `totals.repeats`. */
  /** @param {Lane} lane */
  function measured(lane) {
    const tokens = SV.fold.sumAt(lane, lane.committed).tokens,
      seconds = decodeSeconds(lane, lane.committed);
    return [...(tokens && seconds ? [{ tokens, seconds }] : []), ...repeatsOf(lane)];
  }
  /* Tokens per second of these runs. */
  /** @param {Lane} lane */
  const runsOf = (lane) => measured(lane).map((r) => r.tokens / r.seconds);

  /** @param {Lane} l */
  const counted = (l) => Boolean(l.done && !l.error && l.committed) && !(l.header && l.header.clock === "client");
  /* The number of runs that all of these lanes have: the i-th runs of two lanes are a pair. */
  /** @param {Lane[]} lanes */
  const turns = (lanes) => {
    const mine = lanes.filter(counted).map((l) => measured(l).length);
    return mine.length ? Math.min(...mine) : 0;
  };

  /** @param {Lane} lane */
  const sides = (lane) => {
    const { tokens, passes } = SV.fold.sumAt(lane, lane.committed);
    return { steady: timesOf(lane).steady, tokensPerPass: ratio(tokens, passes) };
  };
  /** @type {WeakMap<Lane, Map<Lane, {key: string, speed: any}>>} */
  const pairs = new WeakMap();
  /* How many times as fast a lane wrote as another, as speed.js has it; null until both have ended. free: a lane that its
     tokens per pass do not bound; most: runs that count. */
  /** @type {Viewer["timing"]["against"]} */
  function against(lane, plain, free = false, most = TURNS) {
    if (!counted(lane) || !counted(plain)) return null;
    const key = [lane.seen, plain.seen, free, most].join(),
      of = pairs.get(lane) ?? new Map(),
      known = of.get(plain);
    pairs.set(lane, of);
    if (known?.key === key) return known.speed;
    const [theirs, mine] = [plain, lane].map((l) => ({ ...sides(l), runs: measured(l).slice(0, most) })),
      speed = speedup(theirs, free ? { ...mine, tokensPerPass: null } : mine);
    of.set(plain, { key, speed });
    return speed;
  }

  /* Passes and drafts of these lanes that were replaced, and of how many. */
  /** @param {Lane[]} lanes */
  function replaced(lanes) {
    const all = lanes.filter((l) => !(l.header && l.header.clock === "client")).map((l) => timesOf(l).steady);
    return { replaced: all.reduce((n, x) => n + x.replaced, 0), of: all.reduce((n, x) => n + x.of, 0) };
  }
  /* Whether other work took the processor: many passes were replaced, or the engine saw a pass take far longer than usual. */
  /** @param {Lane[]} lanes */
  const busy = (lanes) => {
    const { replaced: n, of } = replaced(lanes);
    return isBusy(n, of) || lanes.some((l) => l.checks.some((c) => c.kind === "busy"));
  };
  /* The sentence on a busy machine, or "". */
  /** @param {Lane[]} lanes */
  function busySentence(lanes) {
    if (!lanes.length || !busy(lanes)) return "";
    const { replaced: n, of } = replaced(lanes);
    return SV.messages.say(n ? "timing.busy.replaced" : "timing.busy", { replaced: String(n), of: String(of) });
  }
  /* The same in a few words. */
  /** @param {Lane[]} lanes */
  function busyWords(lanes) {
    if (!lanes.length || !busy(lanes)) return "";
    const { replaced: n, of } = replaced(lanes),
      id = n ? "timing.busy.short.replaced" : "timing.busy.short";
    return SV.messages.say(id, { replaced: String(n), of: String(of) });
  }
  /* The interval of a speed, in words: "about 1.4 (1.3 to 1.5)". */
  /** @type {Viewer["timing"]["words"]} */
  const words = ({ value, low, high }) => {
    const digits = value < 1 ? 2 : 1,
      [a, b, c] = [value, low, high].map((x) => x.toFixed(digits));
    return b === c ? a : SV.messages.say("timing.about", { value: a, low: b, high: c });
  };

  /* Why no speed of these lanes is named, as the identifier of a message, or "". */
  /** @param {Lane[]} lanes */
  function doubt(lanes) {
    const plain = lanes.find((l) => counted(l) && isBaseline(l));
    return lanes.some((l) => plain && l !== plain && against(l, plain)?.named === false) ? "timing.wide" : "";
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
    const low = finite(s[0].low) ? s[0].low : s[0].value / CLOSE;
    return s.slice(1).every((x) => (finite(x.high) ? x.high : x.value * CLOSE) < low) ? s[0] : null;
  };

  /* Sentences about rows that a measurement of the Lab returned: how many passes were replaced, and how many speeds are not
     named,
     where `doubtful` says so of a row. Ends with a space, or is "". */
  /** @type {Viewer["timing"]["remarks"]} */
  function remarks(rows, doubtful, n, of) {
    const say = SV.messages.say,
      wide = rows.filter(doubtful).length,
      out = [];
    if (typeof n === "number" && typeof of === "number" && isBusy(n, of))
      out.push(say("timing.busy.replaced", { replaced: String(n), of: String(of) }));
    if (wide) out.push(say("timing.unnamed", { wide: String(wide), rows: String(rows.length) }));
    return out.map((line) => line + " ").join("");
  }

  SV.timing = {
    BASELINE,
    keyOf,
    isBaseline,
    decodeSeconds,
    ownRate,
    runsOf,
    turns,
    steadyOf: (lane) => timesOf(lane).steady,
    against,
    replaced,
    busy,
    busySentence,
    busyWords,
    words,
    doubt,
    plausible,
    clearBest,
    remarks,
  };
})();
