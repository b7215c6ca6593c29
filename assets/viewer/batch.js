/* Several prompts at once: what a lane wrote for all of them, until the answer that is shown ended. From the notes of kind
   "class"; the lane itself shows the first prompt. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { rate, span, count, times } = SV.dom;
  const CLOSE = 1.05;
  const { say } = SV.messages;
  const title = (lane) => SV.stage.titleOf(lane);
  const whole = (x) => Number.isInteger(x) && x >= 0;

  /** {prompts, tokens, seconds, rate} after k rounds, or null where one prompt runs alone.
   * @param {Lane} lane @param {number} [k] */
  function totals(lane, k = lane.committed) {
    for (let i = Math.min(k, lane.rounds.length) - 1; i >= 0; i--) {
      const data = lane.rounds[i].lens.find((note) => note.kind === "class")?.data;
      if (!data) continue;
      const written = Array.isArray(data.written) ? data.written.filter(whole) : [],
        seconds = typeof data.seconds === "number" && data.seconds > 0 ? data.seconds : null,
        tokens = written.reduce((sum, n) => sum + n, 0);
      return written.length > 1
        ? { prompts: written.length, tokens, seconds, rate: seconds && tokens / seconds }
        : null;
    }
    return null;
  }

  /** The headline of a lane, or "" where one prompt runs alone. over: the lanes have ended.
   * @param {Lane} lane @param {Lane | null} base @param {boolean} over */
  function headline(lane, base, over) {
    const all = totals(lane),
      plain = base && totals(base);
    if (!all) return "";
    const of = { prompts: String(all.prompts), tokens: count(all.tokens, "token") };
    if (!over) return say("batch.so_far", of);
    if (!all.rate || (plain && !believed(lane, all, plain))) return say("batch.uncounted", of);
    const mine = { ...of, seconds: span(all.seconds), rate: rate(all.rate) };
    if (!plain?.rate) return say("batch.alone", mine);
    const k = all.rate / plain.rate,
      much = k >= CLOSE ? "batch.faster" : k * CLOSE <= 1 ? "batch.slower" : "batch.level";
    return say("batch.headline", { ...mine, much: say(much, { times: times(k), plain: rate(plain.rate) }) });
  }
  /* A batch gives no more over plain decoding's than its passes give tokens. */
  const believed = (lane, all, plain) => {
    const sum = SV.fold.sumAt(lane, lane.committed);
    return SV.timing.plausible(all.rate / plain.rate, sum.passes ? sum.tokens / sum.passes : null);
  };

  /** Lanes with several prompts, the largest total first: [{lane, all}].
   * @param {Lane[]} lanes */
  const ranked = (lanes) =>
    lanes
      .filter((lane) => !SV.metrics.isBound(lane))
      .map((lane) => ({ lane, all: totals(lane) }))
      .filter((x) => x.all?.rate)
      .sort((a, b) => b.all.rate - a.all.rate);

  /** Who wrote most for all prompts, as verdict.js has it; null where no two lanes answer several prompts.
   * @param {Lane[]} lanes */
  function verdict(lanes) {
    const all = ranked(lanes),
      [a, b] = all;
    if (!b) return null;
    const plain = all.find((x) => SV.metrics.isBaseline(x.lane)),
      wrong = plain && all.find((x) => x !== plain && !believed(x.lane, x.all, plain.all));
    if (wrong) {
      const sentence = say("verdict.implausible", { title: title(wrong.lane) });
      return { winner: null, second: null, sure: false, level: true, sentence };
    }
    const k = a.all.rate / b.all.rate,
      level = k < CLOSE,
      speeds = { first: title(a.lane), second: title(b.lane), a: rate(a.all.rate), b: rate(b.all.rate) };
    const sentence =
      say(level ? "batch.verdict.level" : "batch.verdict", { ...speeds, prompts: String(a.all.prompts) }) +
      say("verdict.once.repeat");
    return { winner: a.lane, second: b.lane, sure: false, level, sentence };
  }

  SV.batch = { totals, headline, ranked, verdict };
})();
