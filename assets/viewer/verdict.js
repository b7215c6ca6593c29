/* Who won a race, with its spread, in one sentence; and where two texts part. From the folded trace alone. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { rate, count } = SV.dom;
  const M = SV.metrics,
    CLOSE = 0.05;
  const title = (lane) => SV.stage.titleOf(lane);
  const over = (lane) => Boolean(lane.done || lane.error);

  /* {winner, second, sentence, sure, level}. One run each has no spread, and says so. With repeats the i-th runs of two lanes are
     a pair: a winner won every pair, and by more than the spread or by CLOSE in the closest of them; else it is noise.
     runs: the turns that count, where these are not all the lanes of a race. */
  function verdict(every, runs) {
    const own = every.filter((l) => !SV.serverFacts.is(l)) /* a clock of its own: not ranked */,
      lanes = own.filter((l) => !M.isBound(l)),
      counted = runs ?? M.common(lanes),
      all = lanes
        .filter((l) => l.done && !l.error && l.committed)
        .map((lane) => ({ lane, list: SV.timing.take(M.runsOf(lane), counted) }))
        .map((x) => ({ ...x, s: M.spreadOf(x.list) }))
        .filter((x) => x.s)
        .sort((a, b) => b.s.middle - a.s.middle);
    if (all.length < 2 || !every.every(over)) return null;
    const together = busy(lanes) ? null : SV.batch.verdict(all.map((x) => x.lane));
    if (together) return together;
    const [a, b] = all,
      lost = SV.timing.lostSentence(lanes),
      slow = busy(lanes) || incredible(all, counted),
      v = slow ? uncounted(all, slow) : a.s.runs < 2 ? once(a, b, lost) : often(a, b, lost),
      apart = own.length < every.length ? SV.messages.say("verdict.servers") : "";
    return {
      winner: slow ? null : a.lane,
      second: slow ? null : b.lane,
      ...v,
      sentence: v.sentence + (slow ? "" : othersSentence(all)) + apart,
    };
  }
  const percent = (k) => Math.round((k - 1) * 100) + " %";
  const speeds = (a, b) => rate(a.s.middle) + " against " + rate(b.s.middle) + " tokens per second";

  /* The sentence about a lane whose speed-up over plain decoding its accepted length cannot carry, or "". */
  function incredible(all, counted) {
    const plain = all.find((x) => M.isBaseline(x.lane))?.lane,
      found = all.find(({ lane }) => plain && lane !== plain && M.of(lane, lane.committed, plain, counted).implausible);
    return found ? SV.messages.say("verdict.implausible", { title: title(found.lane) }) : "";
  }
  /* Where times do not count, only what no clock measures: the passes. */
  function uncounted(all, slow) {
    const sums = all.map(({ lane }) => ({ lane, m: M.of(lane, lane.committed, null, [0]) })),
      { lane, m } = sums.sort((x, y) => y.m.block_efficiency - x.m.block_efficiency)[0],
      lead = `${title(lane)} took the fewest passes of the large model, ${m.passes} for ${count(m.tokens, "token")}.`;
    return { sure: false, level: true, sentence: `${lead} ${slow}` };
  }
  /* Which lanes did not pay here, in any pair of runs. */
  function othersSentence(all) {
    const plain = all.find((x) => M.isBaseline(x.lane)),
      slower = (x) => x !== plain && Math.min(...M.ratios(plain.list, x.list)) >= 1 + CLOSE,
      names = plain ? all.filter(slower).map((x) => title(x.lane)) : [],
      last = names.pop();
    if (!last) return "";
    const who = names.length ? names.join(", ") + " and " + last + " were" : last + " was";
    return ` ${who} slower than plain decoding here.`;
  }

  /* lost: which other runs there were and do not count. */
  function once(a, b, lost) {
    const k = a.s.middle / b.s.middle,
      level = k < 1 + CLOSE,
      more = percent(k),
      difference = more === "0 %" ? "the difference" : more,
      of = { first: title(a.lane), second: title(b.lane), speeds: speeds(a, b) };
    return {
      sure: false,
      level,
      sentence: level
        ? SV.messages.say("verdict.level", of) +
          (lost ? ". " + lost : SV.messages.say("verdict.once.noise", { difference }))
        : SV.messages.say("verdict.once", of) + (lost ? ". " + lost : SV.messages.say("verdict.once.repeat")),
    };
  }
  function often(a, b, lost) {
    const pairs = M.ratios(a.list, b.list),
      k = M.spreadOf(pairs).middle,
      least = Math.min(...pairs),
      sure = least > 1 && (a.s.low > b.s.high || least >= 1 + CLOSE),
      range = (x) => title(x.lane) + " " + rate(x.s.low) + " to " + rate(x.s.high),
      left = lost && " " + lost,
      bars =
        SV.messages.say("verdict.repeats", { first: range(a), second: range(b), runs: String(pairs.length) }) + left,
      names = title(a.lane) + " and " + title(b.lane);
    return {
      sure,
      level: !sure,
      sentence: sure
        ? title(a.lane) +
          " won, " +
          percent(k) +
          " ahead of " +
          title(b.lane) +
          ": " +
          speeds(a, b) +
          " in the median" +
          bars
        : "No winner: " +
          speeds(a, b) +
          " in the median, but " +
          names +
          " were not apart in every pair of runs: noise" +
          bars,
    };
  }

  /* Why no time of these lanes counts, or "". */
  const busy = (lanes) => {
    const id = SV.timing.doubt(lanes);
    return id && SV.messages.say(id);
  };

  const CUT = ["stopped", "deadline"];
  const cut = (lane) => Boolean(lane.error || (lane.done && CUT.includes(lane.done.finish)));

  /* Where a lane's tokens first differ from plain decoding's: {at, mine, theirs, same, cut}; at is null while they agree, same
     counts the tokens compared. A lane that was stopped agrees when what both wrote does: cut says that this is not all. */
  function firstDifference(lane, base) {
    const n = Math.min(lane.tokens.length, base.tokens.length);
    for (let i = 0; i < n; i++)
      if (lane.tokens[i].tok !== base.tokens[i].tok)
        return { at: i, mine: lane.tokens[i], theirs: base.tokens[i], same: i, cut: false };
    const shorter = lane.tokens.length < base.tokens.length ? lane : base,
      even = lane.tokens.length === base.tokens.length,
      part = even ? cut(lane) || cut(base) : cut(shorter),
      ended = over(lane) && over(base) && !even && !part;
    return { at: ended ? n : null, mine: lane.tokens[n], theirs: base.tokens[n], same: n, cut: part };
  }
  function why(lane) {
    const c = lane.checks.filter((x) => x.kind === "near_tie" || x.kind === "diverged").pop();
    if (c)
      return c.kind === "near_tie"
        ? "a near-tie" + (Number.isFinite(c.detail.margin) ? ", gap " + c.detail.margin.toPrecision(2) : "")
        : "no near-tie" + (Number.isFinite(c.detail.margin) ? ": gap " + c.detail.margin.toPrecision(2) : "");
    return lane.header && lane.header.sampling && lane.header.sampling.temperature > 0
      ? "sampling: other draws, other text"
      : "";
  }

  SV.verdict = { verdict, firstDifference, why, over, busy };
})();
