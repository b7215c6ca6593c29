/* One statistic for speeds: how much faster a lane wrote than another, with an interval that also holds on a busy machine. The
   same
   as specviz/trace/speed.py, which says why; tests/vectors/speed.json tests both. Rounds: {tokens, passes, rows, verify, nodes,
   depth, draft, rest}; runs: {tokens, seconds}. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const SLOW = 2,
    PART = 0.1,
    WIDEST = 2,
    BLOCK = 4,
    DRAWS = 200,
    TAIL = 0.025,
    AGAIN = 1.05,
    AGAIN_BUSY = 1.15,
    FEWEST = 8,
    CONFIDENCE = 0.95,
    CLOSE = 1.05,
    SLACK = 1.15,
    BUSY = 0.05,
    FEW = 2;

  /** @param {number[]} list */
  function median(list) {
    const s = [...list].sort((a, b) => a - b),
      half = s.length >> 1;
    return s.length % 2 ? s[half] : (s[half - 1] + s[half]) / 2;
  }
  /** @param {number[]} list */
  const total = (list) => list.reduce((sum, x) => sum + x, 0);

  /** @param {number[]} seconds @param {string[]} sizes @param {number} least */
  function replace(seconds, sizes, least) {
    /** @type {Map<string, number[]>} */
    const groups = new Map();
    seconds.forEach((took, i) => groups.set(sizes[i], [...(groups.get(sizes[i]) ?? []), took]));
    const usual = new Map([...groups].map(([size, list]) => [size, median(list)])),
      slow = seconds.map((took, i) => {
        const known = usual.get(sizes[i]);
        /* a size of 0 is no pass of the target, or no draft: what took the time is not known */
        return !sizes[i].startsWith("0/") && took > SLOW * known && took - known > least;
      });
    return {
      seconds: seconds.map((took, i) => (slow[i] ? usual.get(sizes[i]) : took)),
      slow: slow.filter(Boolean).length,
    };
  }
  /* {tokens, seconds, verify, draft: of each round, replaced, of}: interrupted passes and drafts are replaced by the lane's
     median for as many
     tokens. */
  /** @type {Viewer["speed"]["steady"]} */
  function steady(rounds) {
    const verify = replace(
        rounds.map((r) => r.verify),
        rounds.map((r) => r.passes + "/" + r.rows),
        0,
      ),
      least = rounds.length ? PART * median(verify.seconds) : 0,
      draft = replace(
        rounds.map((r) => r.draft),
        rounds.map((r) => r.nodes + "/" + r.depth),
        least,
      );
    return {
      tokens: total(rounds.map((r) => r.tokens)),
      seconds: rounds.map((r, i) => verify.seconds[i] + draft.seconds[i] + r.rest),
      verify: verify.seconds,
      draft: draft.seconds,
      replaced: verify.slow + draft.slow,
      of: rounds.filter((r) => r.passes > 0).length + rounds.filter((r) => r.nodes > 0).length,
    };
  }

  /* Fractions in [0, 1) that Python can repeat to the last bit (mulberry32). */
  /** @param {number} seed */
  function randomFractions(seed) {
    let state = seed;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let x = Math.imul(state ^ (state >>> 15), state | 1) >>> 0;
      x = (x ^ (x + Math.imul(x ^ (x >>> 7), x | 61))) >>> 0;
      return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
    };
  }
  /** @param {number[]} seconds @param {() => number} draw */
  function resample(seconds, draw) {
    const count = seconds.length,
      blocks = Math.ceil(count / BLOCK);
    let sum = 0;
    for (let b = 0; b < blocks; b++) {
      const first = Math.floor(draw() * count);
      for (let i = 0; i < BLOCK; i++) sum += seconds[(first + i) % count];
    }
    return (sum * count) / (blocks * BLOCK);
  }
  function bootstrap(plain, ours) {
    const replaced = plain.replaced + ours.replaced;
    if (Math.min(plain.seconds.length, ours.seconds.length) < (replaced ? FEWEST : BLOCK)) return [null, null];
    const again = isBusy(replaced, plain.of + ours.of) ? AGAIN_BUSY : AGAIN;
    const draw = randomFractions(1),
      each = ours.tokens / plain.tokens,
      ratios = [];
    for (let i = 0; i < DRAWS; i++) {
      const a = resample(plain.seconds, draw);
      ratios.push((a / resample(ours.seconds, draw)) * each);
    }
    ratios.sort((a, b) => a - b);
    const cut = Math.floor(TAIL * DRAWS);
    return [ratios[cut] / again, ratios[DRAWS - 1 - cut] * again];
  }

  /* The ends of the interval of the median: the narrowest pair of order statistics with at least CONFIDENCE, else all. */
  /** @type {Viewer["speed"]["medianInterval"]} */
  function medianInterval(values) {
    const s = [...values].sort((a, b) => a - b);
    let best = 0,
      below = 0.5 ** s.length /* the probability of k or fewer of n values below the median */,
      term = below;
    for (let k = 1; k < Math.floor((s.length + 1) / 2); k++) {
      term *= (s.length - k + 1) / k;
      below += term;
      if (1 - 2 * below >= CONFIDENCE) best = k;
    }
    return [s[best], s[s.length - 1 - best]];
  }

  /* {value, low, high, replaced, of, named, clear} of two lanes {steady, runs, tokensPerPass}: how many times as fast ours
     wrote. */
  /** @type {Viewer["speed"]["speedup"]} */
  function speedup(plain, ours) {
    const pairs = plain.runs
        .slice(0, ours.runs.length)
        .map((a, i) => a.seconds / a.tokens / (ours.runs[i].seconds / ours.runs[i].tokens)),
      out = {
        replaced: plain.steady.replaced + ours.steady.replaced,
        of: plain.steady.of + ours.steady.of,
      };
    if (!pairs.length) return { value: null, low: null, high: null, ...out, named: false, clear: false };
    const value = median(pairs),
      [low, high] = pairs.length > 1 ? medianInterval(pairs) : bootstrap(plain.steady, ours.steady),
      possible = ours.tokensPerPass === null || value <= Math.max(1, ours.tokensPerPass) * SLACK,
      named = low !== null && high <= WIDEST * low && possible;
    return { value, low, high, ...out, named, clear: named && low > 1 && value >= CLOSE };
  }
  /** @param {number} replaced @param {number} of */
  const isBusy = (replaced, of) => replaced > Math.max(FEW, BUSY * of);

  SV.speed = { steady, speedup, medianInterval, randomFractions, median, isBusy, CLOSE, SLACK, WIDEST };
})();
