/* Who won a race, with its spread, in one sentence; and where two texts part. From the folded trace alone. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { rate } = SV.dom;
  const M = SV.metrics;
  const { against } = SV.timing;
  const title = (lane) => SV.stage.titleOf(lane);
  const over = (lane) => Boolean(lane.done || lane.error);

  /* {winner, second, sentence, sure, level}: the fastest two by the statistic of speed.js. One run each has no spread over runs,
     and
     says so. Where that names no speed, only what no clock measures is said. runs: how many runs count, where these are not all
     the lanes of a race. */
  function verdict(every, runs) {
    const own = every.filter((l) => !SV.serverFacts.is(l)) /* a clock of its own: not ranked */,
      lanes = own.filter((l) => !M.isBound(l)),
      counted = runs ?? M.common(lanes),
      all = lanes
        .filter((l) => l.done && !l.error && l.committed)
        .map((lane) => ({ lane, s: M.spreadOf(M.runsOf(lane).slice(0, counted)) }))
        .filter((x) => x.s)
        .sort((a, b) => b.s.middle - a.s.middle);
    if (all.length < 2 || !every.every(over)) return null;
    const together = SV.batch.verdict(all.map((x) => x.lane));
    if (together) return together;
    if (unequal(all)) {
      const { level, sure, sentence } = uncounted(all, "verdict.cut");
      return { winner: null, second: null, level, sure, sentence };
    }
    const [a, b] = all,
      plain = all.find((x) => M.isBaseline(x.lane))?.lane,
      named = (x) => !plain || x.lane === plain || against(x.lane, plain, false, counted)?.named !== false,
      speed = against(a.lane, b.lane, true, counted),
      known = Boolean(speed?.named && named(a) && named(b)),
      v = !known ? uncounted(all) : a.s.runs < 2 ? once(a, b, speed) : often(a, b, speed),
      apart = own.length < every.length ? SV.messages.say("verdict.servers") : "";
    return {
      winner: known ? a.lane : null,
      second: known ? b.lane : null,
      ...v,
      sentence: v.sentence + (known ? othersSentence(all, counted) : "") + apart,
    };
  }
  /* Whether a stop or a limit cut lanes at texts of unequal length: what each wrote last may be easy or hard. */
  const unequal = (all) =>
    all.some(({ lane }) => ["stopped", "deadline"].includes(lane.done.finish)) &&
    new Set(all.map(({ lane }) => M.of(lane, lane.committed, null, 1).tokens)).size > 1;
  const percent = (k) => Math.round((k - 1) * 100) + " %";
  const speeds = (a, b) => rate(a.s.middle) + " against " + rate(b.s.middle) + " tokens per second";

  /* Where no speed is named, only what no clock measures: tokens a pass, which texts of unequal length can be compared by. */
  function uncounted(all, why = "timing.wide") {
    const sums = all.map(({ lane }) => ({ lane, m: M.of(lane, lane.committed, null, 1) })),
      { lane, m } = sums.sort((x, y) => y.m.block_efficiency - x.m.block_efficiency)[0],
      lead = SV.messages.say("verdict.passes", { title: title(lane), each: m.block_efficiency.toFixed(2) });
    return { sure: false, level: true, sentence: `${lead} ${SV.messages.say(why)}` };
  }
  /* Which lanes did not pay here. */
  function othersSentence(all, counted) {
    const plain = all.find((x) => M.isBaseline(x.lane)),
      slower = (x) => x !== plain && against(plain.lane, x.lane, true, counted)?.clear,
      names = plain ? all.filter(slower).map((x) => title(x.lane)) : [],
      last = names.pop();
    if (!last) return "";
    const who = names.length ? names.join(", ") + " and " + last + " were" : last + " was";
    return ` ${who} slower than plain decoding here.`;
  }

  function once(a, b, speed) {
    const level = !speed.clear,
      more = percent(speed.value),
      of = {
        first: title(a.lane),
        second: title(b.lane),
        speeds: speeds(a, b),
        times: SV.timing.words(speed),
        difference: more === "0 %" ? "the difference" : more,
      };
    return {
      sure: false,
      level,
      sentence: level
        ? SV.messages.say("verdict.level", of) + SV.messages.say("verdict.once.noise", of)
        : SV.messages.say("verdict.once", of) + SV.messages.say("verdict.once.repeat"),
    };
  }
  function often(a, b, speed) {
    const range = (x) => title(x.lane) + " " + rate(x.s.low) + " to " + rate(x.s.high),
      of = {
        first: title(a.lane),
        second: title(b.lane),
        speeds: speeds(a, b),
        more: percent(speed.value),
        a: range(a),
        b: range(b),
        runs: String(a.s.runs),
      };
    return {
      sure: speed.clear,
      level: !speed.clear,
      sentence:
        SV.messages.say(speed.clear ? "verdict.often" : "verdict.often.noise", of) +
        SV.messages.say("verdict.repeats", of),
    };
  }

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

  SV.verdict = { verdict, firstDifference, why, over };
})();
