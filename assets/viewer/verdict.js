/* Who won a race, with its spread, in one sentence; and where two texts part. From the folded trace alone. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { rate } = SV.dom;
  const M = SV.metrics,
    CLOSE = 0.05;
  const title = (lane) => SV.stage.titleOf(lane);
  const over = (lane) => Boolean(lane.done || lane.error);

  /* {winner, second, sentence, sure}. One run each has no spread, and says so; overlapping spreads are noise. */
  function verdict(lanes) {
    const all = lanes
      .filter((l) => l.done && !l.error && l.committed)
      .map((lane) => ({ lane, s: M.spreadOf(M.runsOf(lane)) }))
      .filter((x) => x.s)
      .sort((a, b) => b.s.middle - a.s.middle);
    if (all.length < 2 || !lanes.every(over)) return null;
    const [a, b] = all,
      k = a.s.middle / b.s.middle,
      runs = Math.min(a.s.runs, b.s.runs),
      speeds =
        rate(a.s.middle) + " against " + rate(b.s.middle) + " tokens per second" + (runs > 1 ? " in the median" : "");
    const name = title(a.lane),
      other = title(b.lane),
      more = Math.round((k - 1) * 100) + " %";
    if (runs < 2) {
      const close = k < 1 + CLOSE;
      return {
        ...pick(a, b),
        sure: false,
        sentence: close
          ? name +
            " and " +
            other +
            " are as good as level: " +
            speeds +
            ". One run each: no spread, so " +
            (more === "0 %" ? "the difference" : more) +
            " may be noise."
          : name + " was fastest, " + more + " ahead of " + other + ": " + speeds + ". One run each: no spread.",
      };
    }
    const bars =
      " (" +
      name +
      " " +
      rate(a.s.low) +
      " to " +
      rate(a.s.high) +
      ", " +
      other +
      " " +
      rate(b.s.low) +
      " to " +
      rate(b.s.high) +
      " in " +
      runs +
      " runs each; the lanes draw the first)";
    if (b.s.high >= a.s.low)
      return {
        ...pick(a, b),
        sure: false,
        sentence:
          "No winner: the difference of " +
          more +
          " between " +
          name +
          " and " +
          other +
          " is within the spread, so it is noise" +
          bars +
          ".",
      };
    return {
      ...pick(a, b),
      sure: true,
      sentence: name + " won, " + more + " ahead of " + other + ": " + speeds + bars + ".",
    };
  }
  const pick = (a, b) => ({ winner: a.lane, second: b.lane });

  /* Where a lane's tokens first differ from plain decoding's: {at, mine, theirs, same}; at is null while they agree. */
  function parting(lane, base) {
    const n = Math.min(lane.tokens.length, base.tokens.length);
    for (let i = 0; i < n; i++)
      if (lane.tokens[i].tok !== base.tokens[i].tok)
        return { at: i, mine: lane.tokens[i], theirs: base.tokens[i], same: i };
    const ended = over(lane) && over(base) && lane.tokens.length !== base.tokens.length;
    return { at: ended ? n : null, mine: lane.tokens[n], theirs: base.tokens[n], same: n };
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

  SV.verdict = { verdict, parting, why, over };
})();
