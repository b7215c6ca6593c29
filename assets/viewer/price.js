/* The price of a round beside a pass of plain decoding, after interrupted passes were replaced: one figure for the headline, the
   marks
   of the strip and the panels. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const ENOUGH = 8; /* rounds of a lane, for its price to be more than chance */
  const ended = (lane) => Boolean(lane.done || lane.error);

  /* What a round costs and gives: {each: tokens a round, even: tokens from which it pays, verify: plain passes that a pass over
     guesses costs, share: of the time that guessing takes}; null where it is not known or of too few rounds. */
  function of(lane, base) {
    if (
      !base ||
      SV.metrics.isBaseline(lane) ||
      !ended(lane) ||
      !ended(base) ||
      SV.serverFacts.is(lane) ||
      SV.batch.totals(lane)
    )
      return null;
    const mine = SV.timing.steadyOf(lane),
      plain = SV.timing.steadyOf(base),
      rounds = mine.seconds.length,
      sum = (list) => list.reduce((a, b) => a + b, 0),
      seconds = sum(mine.seconds);
    if (Math.min(rounds, plain.seconds.length) < ENOUGH || !(seconds > 0) || !(sum(plain.verify) > 0)) return null;
    return {
      each: mine.tokens / rounds,
      even: seconds / rounds / (sum(plain.seconds) / plain.tokens),
      verify: sum(mine.verify) / rounds / (sum(plain.verify) / plain.seconds.length),
      share: sum(mine.draft) / seconds,
    };
  }

  SV.price = { of, ENOUGH };
})();
