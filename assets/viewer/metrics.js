/* Every figure on the board and its definition, in one place. The Python side computes the same from the same records. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const ratio = (a, b) => (b > 0 && a !== null ? a / b : null);

  const { BASELINE, keyOf, isBaseline, against, decodeSeconds, ownRate, runsOf } = SV.timing;
  /** @param {number[]} list */
  const median = (list) => spreadOf(list)?.middle ?? null;

  /* runs: how many runs count (see common); where a lane has ended and was run more than once, its rate is their median and its
     seconds go with that. Its speed-up over the baseline is that of speed.js; null where that names none. */
  /** @param {Lane} lane @param {number} k @param {Lane | null} [baseline] @param {number} [runs] */
  function of(lane, k, baseline, runs) {
    const s = SV.fold.sumAt(lane, k),
      seconds = decodeSeconds(lane, k),
      ended = Boolean(lane.done && k >= lane.committed),
      most = runs ?? common(baseline ? [lane, baseline] : [lane]),
      list = ended ? runsOf(lane).slice(0, most) : [],
      again = list.length > 1,
      middle = again ? median(list) : null;
    const m = {
      tokens: s.tokens,
      rounds: s.rounds,
      passes: s.passes,
      drafted: s.drafted,
      accepted: s.accepted,
      tried: s.tried,
      rejected: s.rejected,
      skipped: s.skipped,
      bonus: s.bonus,
      correction: s.correction,
      plain: s.plain,
      seconds: again ? s.tokens / middle : seconds,
      tokens_per_second: again ? middle : ratio(s.tokens, seconds),
      spread: list.length > 1 ? spreadOf(list) : null,
      block_efficiency: ratio(s.tokens, s.passes),
      mean_accepted_tokens: ratio(s.accepted, s.passes),
      acceptance_rate: ratio(s.accepted, s.tried),
      examined_acceptance: ratio(s.accepted, s.examined),
      draft_yield: ratio(s.accepted, s.drafted),
      per_position: SV.totals.byDepth(lane, k).map(([tried, ok]) => ({
        tried,
        accepted: ok,
        rate: ratio(ok, s.rounds),
        conditional: ratio(ok, tried),
      })),
      rows: s.rows,
      rows_per_pass: ratio(s.rows, s.passes),
      parts: s.parts,
      agree: s.agree,
      checked: s.checked,
      time_to_first_token: firstToken(lane),
      walltime_speedup: null,
      baseline_tokens_per_second: null,
      speed: null,
    };
    if (baseline && baseline.committed) {
      const theirs = again ? runsOf(baseline).slice(0, most) : [];
      m.baseline_tokens_per_second = theirs.length > 1 ? median(theirs) : ownRate(baseline, baseline.committed);
      m.speed = ended ? against(lane, baseline, isBound(lane), most) : null;
      m.walltime_speedup = m.speed
        ? m.speed.named
          ? m.speed.value
          : null
        : ended
          ? null
          : ratio(m.tokens_per_second, m.baseline_tokens_per_second);
    }
    return SV.serverFacts.is(lane) ? SV.serverFacts.figures(m, lane, k) : m;
  }
  /* Engine seconds of the prefill and of the first round; null before it. */
  /** @param {Lane} lane */
  function firstToken(lane) {
    if (!lane.prefill || !lane.committed || SV.serverFacts.is(lane)) return null;
    return lane.prefill.t1 - lane.prefill.t0 + SV.fold.endOf(lane, 0) - SV.fold.startOf(lane, 0);
  }
  /* The number of runs that all of these lanes have: the i-th runs were measured in one go, so they are pairs. A server's lane is
     on another clock and never one of a pair. */
  /** @param {Lane[]} lanes */
  const common = (lanes) => SV.timing.turns(lanes);

  /* The middle, and how far the runs lie apart: all of them up to four, the middle half beyond. */
  /** @param {number[]} list */
  function spreadOf(list) {
    if (!list.length) return null;
    const s = [...list].sort((a, b) => a - b),
      at = (q) => {
        const i = q * (s.length - 1),
          lo = Math.floor(i);
        return s[lo] + (s[Math.min(s.length - 1, lo + 1)] - s[lo]) * (i - lo);
      };
    return {
      runs: s.length,
      middle: at(0.5),
      low: s.length > 4 ? at(0.25) : s[0],
      high: s.length > 4 ? at(0.75) : s[s.length - 1],
    };
  }

  /* Whether a lane is an upper bound on speed (the oracle) and no method: it wins nothing. */
  /** @param {Lane} lane */
  const isBound = (lane) => lane.header?.method?.bound === true;
  /* A lane's speed as a share of that of an upper bound with the same draft length among these rows, or null where there is none
     or times do not count. */
  function ofPossible(row, rows) {
    const gamma = row.lane.header?.knobs?.gamma,
      limit = rows.find((r) => isBound(r.lane) && r.lane.done && r.lane.header.knobs?.gamma === gamma);
    if (gamma === undefined || !limit) return null;
    const speed = row.lane === limit.lane ? null : against(row.lane, limit.lane, true);
    return speed ? (speed.named ? speed.value : null) : ratio(row.m.tokens_per_second, limit.m.tokens_per_second);
  }
  /* The methods of a list of cards: all but plain decoding and the servers. The page counts methods by this. */
  const methodsOf = (cards) => cards.filter((c) => c.key !== BASELINE && !c.key.startsWith("server:"));
  /* Which of several answers (n) a lane is, from 0. */
  /** @param {Lane} lane */
  const answerOf = (lane) => lane.header?.answer?.index ?? 0;
  /* of: the lane that is compared; of several answers (n), each has its own. */
  /** @param {Folded} state @param {Lane | null} [of] */
  const baselineOf = (state, of = null) => {
    const lanes = state.order.map((id) => state.lanes.get(id)).filter(isBaseline);
    return (of && lanes.find((l) => answerOf(l) === answerOf(of))) || lanes[0] || null;
  };

  const STRETCH = 64; /* tokens, as trace/answer_places.py */
  /* The accepted length of each stretch of the answer: a round counts where its first token stands. null without a pass. */
  /** @param {Lane} lane @param {number} k */
  function alongAnswer(lane, k) {
    /** @type {{tokens: number, passes: number}[]} */
    const places = [];
    for (let i = 0; i < k; i++) {
      const before = SV.fold.sumAt(lane, i),
        now = SV.fold.sumAt(lane, i + 1),
        place = Math.floor(before.tokens / STRETCH);
      while (places.length <= place) places.push({ tokens: 0, passes: 0 });
      places[place].tokens += now.tokens - before.tokens;
      places[place].passes += now.passes - before.passes;
    }
    return places.map((one) => ratio(one.tokens, one.passes));
  }

  const DEFINITIONS = {
    tokens_per_second: [
      "Tokens per second",
      "Tokens written divided by the engine's time after the prompt was read (the prefill). Arrival times on this page " +
        "are never used.",
      "tokens / (t \u2212 t_prefill)",
    ],
    walltime_speedup: [
      "Speed-up",
      "Against plain decoding of the same prompt, measured in the same run on the same machine. Both without reading the prompt.",
      "(s per token, plain) / (s per token)",
    ],
    block_efficiency: [
      "Accepted length",
      "Tokens that one pass of the large model gives, on average, its own bonus or correction token included. Engines call it " +
        "mean acceptance length; papers block efficiency, \u03c4 or mean accepted length.",
      "committed tokens / target passes",
    ],
    accepted_length: [
      "Accepted length",
      "How many tokens one pass of the large model gives, on average: the drafted ones it kept, and the one " +
        "it adds itself. Plain decoding has 1. Papers also call it block efficiency, or \u03c4.",
      "committed tokens / target passes",
    ],
    draft_yield: [
      "Draft kept",
      "Accepted over drafted tokens. The small figure is the acceptance rate: accepted over examined. Tokens " +
        "after a rejection were never examined.",
      "accepted / drafted,  accepted / tried",
    ],
    acceptance_rate: [
      "Acceptance rate",
      "Accepted over examined draft tokens. Tokens that were never examined do not count.",
      "accepted / tried",
    ],
    per_position: [
      "Kept by position",
      "Share of the rounds in which the draft token at this position was accepted.",
      "accepted at i / rounds",
    ],
    mean_accepted_tokens: [
      "Accepted per pass",
      "Draft tokens accepted per pass of the large model, on average, without the bonus or correction token.",
      "accepted / target passes",
    ],
    certificate: [
      "Same text as plain",
      "Whether this run's tokens equal plain decoding's. Two forms of the same sum can differ in the last " +
        "bit, so a near-tie is named, not hidden.",
      "tokens = plain tokens",
    ],
    verdicts: [
      "Verdicts recomputed",
      "Every stored verdict is recomputed from its draw and its acceptance probability. When sampling, equal " +
        "text is not expected.",
      "accepted \u21d4 u < a",
    ],
    rows_per_pass: [
      "Rows in a pass",
      "How many rows the large model reads in one pass, on average: the last committed token and the drafted " +
        "ones. Wider passes cost more.",
      "rows / target passes",
    ],
    saved: [
      "Passes saved",
      "Plain decoding needs one pass for every token; so many fewer were needed for the same number of tokens.",
      "tokens \u2212 target passes",
    ],
    time_to_first_token: [
      "Time to first token",
      "Engine time from the beginning of the prefill to the end of the first round. In a " +
        "conversation the tokens that the KV cache " +
        "holds from the turn before are not computed again.",
      "t_prefill + t_round 1",
    ],
    of_possible: [
      "Of what is possible",
      "This lane's tokens per second as a share of the upper bound's with the same draft length, whose drafts cost " +
        "nothing and are always accepted.",
      "tokens per second / (tokens per second, upper bound)",
    ],
    where: [
      "Where the time went",
      "Engine time after the prefill, part by part: writing the draft, the target's passes, judging, caches, all else.",
      "seconds by part",
    ],
    rounds: ["Target passes", "How often the large model ran after the prefill.", "passes"],
  };

  /* Tokens of a finished lane that came from earlier answers of the same visitor, as its run counted them; a count that cannot
     be is none. */
  /** @param {Lane} lane */
  function remembered(lane) {
    const n = lane.done && lane.done.totals ? lane.done.totals.remembered : 0;
    return Number.isInteger(n) && n > 0 && n <= SV.fold.sumAt(lane, lane.committed).tokens ? n : 0;
  }

  SV.metrics = {
    of,
    remembered,
    runsOf,
    common,
    spreadOf,
    decodeSeconds,
    isBaseline,
    isBound,
    ofPossible,
    methodsOf,
    answerOf,
    baselineOf,
    keyOf,
    DEFINITIONS,
    STRETCH,
    alongAnswer,
    BASELINE,
  };
})();
