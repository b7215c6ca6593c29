/* Facts about a lane that a server wrote, each with its source. Its rounds are messages, its clock is the client's. A
   fact is {name, badge, value}: observed (sent by the server or measured by the clock), inferred (from the sizes of
   messages) or unknown. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { num } = SV.shape;
  const BADGES = ["observed", "inferred", "unknown"];
  const UNKNOWN = Object.freeze({ badge: "unknown", value: null });

  const is = (lane) => Boolean(lane && lane.header && lane.header.clock === "client");
  const ended = (lane, k) => Boolean(lane.done && k >= lane.committed);

  /* From a trace, so of any shape: names are words, badges one of three, and what has no value is unknown. */
  function facts(lane) {
    const rec = lane.checks.findLast((c) => c.kind === "told"),
      list = rec && Array.isArray(rec.detail.facts) ? rec.detail.facts.slice(0, 64) : [];
    return list
      .filter((f) => f && typeof f.name === "string")
      .map((f) => ({
        name: f.name.slice(0, 40),
        badge: BADGES.includes(f.badge) ? f.badge : "unknown",
        value: Array.isArray(f.value) ? f.value.slice(0, 4096) : num(f.value),
      }));
  }
  function doubts(lane) {
    const rec = lane.checks.findLast((c) => c.kind === "told"),
      list = rec && Array.isArray(rec.detail.doubts) ? rec.detail.doubts : [];
    return list
      .filter((s) => typeof s === "string")
      .slice(0, 8)
      .map((s) => SV.text.joined(SV.text.visible(s)).slice(0, 200));
  }

  /* While it streams some servers count their drafts in every message. */
  function latestMessage(lane, k) {
    for (let i = Math.min(k, lane.rounds.length) - 1; i >= 0; i--) {
      const data = lane.rounds[i].lens.find((x) => x.kind === "message")?.data;
      if (data && num(data.drafted) !== null && num(data.accepted) !== null)
        return { drafted: Math.max(0, data.drafted), accepted: Math.max(0, Math.min(data.accepted, data.drafted)) };
    }
    return null;
  }

  /* The figures of metrics.js for such a lane: what is not reported stays null; badges says of each where it comes from. */
  function figures(m, lane, k) {
    const over = ended(lane, k),
      all = over ? facts(lane) : [],
      get = (name) => all.find((f) => f.name === name && (f.value !== null || f.badge !== "unknown")) || UNKNOWN,
      value = (name) => (typeof get(name).value === "number" ? get(name).value : null),
      live = over ? null : latestMessage(lane, k);
    const tokens = value("tokens") ?? m.tokens,
      first = lane.rounds[0]?.commit?.n_new ?? 0,
      from = lane.prefill ? lane.prefill.t1 : 0,
      at = k ? (lane.rounds[k - 1]?.commit?.t ?? from) : from,
      drafted = live ? live.drafted : value("drafted"),
      accepted = live ? live.accepted : value("accepted"),
      passes = live ? Math.max(0, m.tokens - live.accepted) : value("passes"),
      steps = value("steps") ?? passes;
    const places = get("by_position"),
      list = Array.isArray(places.value) ? places.value : [];
    const badgeOf = (name) => (live ? "observed" : get(name).badge);
    return {
      ...m,
      tokens,
      passes,
      drafted,
      accepted,
      tried: null,
      rejected: null,
      skipped: null,
      seconds: at > from ? at - from : null,
      tokens_per_second: at > from && m.tokens > first ? (m.tokens - first) / (at - from) : null,
      spread: null,
      block_efficiency: live ? (passes ? m.tokens / passes : null) : value("accepted_length"),
      mean_accepted_tokens: passes && accepted !== null ? accepted / passes : null,
      acceptance_rate: null,
      draft_yield: drafted ? accepted / drafted : null,
      per_position: list
        .filter((p) => Array.isArray(p) && num(p[0]) !== null && num(p[1]) !== null)
        .slice(0, 64)
        .map(([tried, ok]) => ({
          tried,
          accepted: ok,
          rate: steps ? ok / steps : null,
          conditional: tried ? ok / tried : null,
        })),
      rows: null,
      rows_per_pass: null,
      walltime_speedup: null,
      baseline_tokens_per_second: null,
      badges: {
        tokens: over ? get("tokens").badge : "observed",
        passes: badgeOf("passes"),
        draft: badgeOf("drafted"),
        per_position: places.badge,
      },
    };
  }

  const words = (lane) => lane.tokens.map((t) => SV.text.joined(t.parts));
  /* Where its text first differs from another lane's, letter by letter: {at: its token or null, same: letters compared}. */
  function firstDifference(lane, base) {
    const mine = words(lane),
      all = mine.join(""),
      theirs = words(base).join("");
    let n = 0;
    while (n < all.length && n < theirs.length && all[n] === theirs[n]) n++;
    const whole = lane.done && base.done && lane.done.finish === "stop" && base.done.finish === "stop";
    if (n >= Math.min(all.length, theirs.length) && (all.length === theirs.length || !whole))
      return { at: null, same: n };
    let i = 0;
    for (let seen = mine[0]?.length ?? 0; seen <= n && i < mine.length - 1; i++) seen += mine[i + 1].length;
    return { at: i, same: n };
  }

  SV.serverFacts = { is, facts, doubts, figures, firstDifference, ended, BADGES };
})();
