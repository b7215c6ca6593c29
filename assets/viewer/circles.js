/* An answer that goes round in circles: the same run of N tokens comes for the third time. A small model does that; who reads its
   answer, or its speed (what repeats is easy to guess), should know. Where nothing else stands between, the round is named. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const N = 12,
    TIMES = 3;
  const known = new WeakMap(); /* lane -> how far it was read, and how often each run of N tokens came */

  /* The round of an answer that ends in one: {at, n, times}, its first token (an index), its tokens and how often all of them
     came; null where other tokens stand between. upto: an index inside a repeated run. */
  function round(toks, upto) {
    const same = (i, n) => toks[i].tok === toks[i - n].tok;
    const repeats = (n) => {
      const first = upto + 1 - 2 * Math.max(n, N);
      for (let i = upto; i >= first; i--) if (i < n || !same(i, n)) return false;
      return true;
    };
    for (let n = 1; 3 * n <= upto + 1; n++) {
      if (!repeats(n)) continue;
      let at = upto,
        end = upto + 1;
      while (at - n >= 0 && same(at, n)) at--;
      while (end < toks.length && same(end, n)) end++;
      return { at: at - n + 1, n, times: Math.floor((end - (at - n + 1)) / n) };
    }
    return null;
  }
  /* {at, n, times}: the round; where other tokens stand between, the token with which a run of N began for the third time
     (an index), and how often it came; or null. */
  function find(lane) {
    const toks = lane.tokens;
    let seen = known.get(lane);
    if (!seen || seen.read > toks.length)
      known.set(lane, (seen = { read: 0, counts: new Map(), found: null, key: "" }));
    for (let i = Math.max(N - 1, seen.read); i < toks.length; i++) {
      const key = toks
          .slice(i - N + 1, i + 1)
          .map((t) => t.tok)
          .join(),
        old = seen.counts.get(key);
      /* runs that overlap are one: a single token over and over is counted every N tokens */
      if (old && i - old.last < N) continue;
      const now = { times: (old ? old.times : 0) + 1, last: i };
      seen.counts.set(key, now);
      if (now.times === TIMES && !seen.found) {
        seen.found = { at: i - N + 1, times: TIMES };
        seen.key = key;
      } else if (seen.found && key === seen.key) seen.found.times = now.times;
    }
    seen.read = toks.length;
    return seen.found && (round(toks, seen.found.at + N - 1) ?? { at: seen.found.at, n: N, times: seen.found.times });
  }
  /* base: plain decoding's lane, which may do the same: then it is the model's doing and not the method's. */
  function sentence(lane, base = null) {
    const found = lane && !SV.serverFacts.is(lane) ? find(lane) : null;
    if (!found) return "";
    return SV.messages.say(base && base !== lane && find(base) ? "circles.both" : "circles", {
      title: SV.stage.titleOf(lane),
      at: String(found.at + 1),
      n: SV.dom.count(found.n, "token"),
      times: String(found.times),
    });
  }

  SV.circles = { find, sentence, N, TIMES };
})();
