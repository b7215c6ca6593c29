/* A trace as the panels reason about it: lanes with rounds, their times by phase, and which draft was right where.
   Records may come from anywhere, so they are folded by the viewer first (every field of the right type), and what the
   fold leaves out (times by phase, sizes of the models) is read here with the same suspicion. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { finite, sum, mean, median } = P.kit;
  const obj = (x) => (x && typeof x === "object" && !Array.isArray(x) ? x : {});
  const pos = (x) => (finite(x) && x > 0 ? x : 0);
  let memo = { n: -1, lanes: [] };

  /* The board gives a fresh list of the same records each time: its ends tell whether anything came or changed. */
  function lanes(records) {
    const list = Array.isArray(records) ? records : [],
      n = list.length;
    if (memo.n !== n || memo.first !== list[0] || memo.last !== list[n - 1])
      memo = { n, first: list[0], last: list[n - 1], lanes: read(list) };
    return memo.lanes;
  }

  function read(list) {
    const st = SpecViz.fold.fold(list),
      raw = new Map();
    for (const r of list) {
      if (!r || typeof r !== "object" || !Number.isInteger(r.lane)) continue;
      if (r.type === "header" && !raw.has(r.lane)) raw.set(r.lane, { header: r });
    }
    const runs = SpecViz.metrics.common([...st.lanes.values()]);
    const all = st.order.map((id) => lane(st, st.lanes.get(id), raw.get(id), runs)).filter((l) => l.rounds.length);
    for (const l of all) {
      const plain = SpecViz.metrics.baselineOf(st, l.folded),
        base = all.find((other) => other.folded === plain) || null;
      l.base = base && base !== l ? base : null;
      /* why its times do not count, as a message's identifier, or "" */
      l.doubt = l.metrics.speed && !l.metrics.speed.named ? "timing.wide" : "";
    }
    return all;
  }

  function lane(st, folded, raw, runs) {
    const h = folded.header || { method: {} },
      full = obj(raw && raw.header),
      env = obj(full.env),
      sampling = obj(full.sampling);
    const out = {
      id: folded.id,
      folded,
      key: h.method.key || "",
      title: (h.method.title || "Lane " + (folded.id + 1)) + (h.answer ? ", answer " + (h.answer.index + 1) : ""),
      family: h.method.family || "",
      exactness: h.method.exactness || "",
      baseline: SpecViz.metrics.isBaseline(folded),
      mode: h.mode || "recorded",
      created: h.created || "",
      machine: h.env ? h.env.machine : "",
      prompt: h.prompt ? h.prompt.text : "",
      temperature: finite(sampling.temperature) ? sampling.temperature : 0,
      knobs: obj(full.knobs),
      maxNew: h.max_new_tokens || 0,
      sampling,
      dtype: typeof env.dtype === "string" ? env.dtype : "",
      targetSize: pos(obj(full.target).parameters),
      draftSize: pos(obj(full.draft).parameters),
      targetName: h.target ? h.target.name : "",
      draftName: h.draft ? h.draft.name : "",
      runId: h.run_id || "",
      rounds: [],
    };
    const times = SpecViz.timing.steadyOf(folded); /* interrupted passes are replaced, as in every speed */
    for (const r of folded.rounds.slice(0, folded.committed)) if (r.commit) out.rounds.push(round(r, times));
    let at = 0;
    for (const r of out.rounds) {
      r.from = at;
      at += r.n;
    }
    out.tokens = at;
    out.metrics = SpecViz.metrics.of(folded, folded.committed, SpecViz.metrics.baselineOf(st, folded), runs);
    return out;
  }

  function round(r, times) {
    const [draftTime, verifyTime, all] = [times.draft[r.i], times.verify[r.i], times.seconds[r.i]],
      t =
        r.timing && finite(all) ? { draft: draftTime, verify: verifyTime, other: all - draftTime - verifyTime } : null;
    const draft = r.draft,
      verify = r.verify;
    const nodes = r.nodes.filter((n) => !n.probe),
      depth = nodes.reduce((m, n) => Math.max(m, n.depth), 0);
    return {
      i: r.i,
      raw: r,
      nodes,
      all: r.nodes,
      depth,
      path: r.path,
      why: r.why,
      tail: r.commit.tail,
      n: Math.max(0, r.commit.n_new),
      rows: verify ? Math.max(1, verify.n_in || r.nodes.length + 1) : 1,
      draft: t ? t.draft : draft ? draft.t1 - draft.t0 : 0,
      verify: t ? t.verify : verify ? verify.t1 - verify.t0 : 0,
      other: t ? t.other : 0,
    };
  }

  /* What a lane's rounds cost, in seconds: means, after interrupted passes were replaced. `step`: one step of the draft, by
     levels of the tree. */
  function costs(l) {
    const rs = l.rounds.filter((r) => r.verify > 0),
      drafted = rs.filter((r) => r.depth > 0);
    return {
      draft: mean(rs.map((r) => r.draft)) ?? 0,
      verify: mean(rs.map((r) => r.verify)) ?? 0,
      other: mean(rs.map((r) => r.other)) ?? 0,
      step: drafted.length ? sum(drafted.map((r) => r.draft)) / sum(drafted.map((r) => r.depth)) : 0,
      idle: mean(rs.filter((r) => !r.depth).map((r) => r.draft)) ?? 0,
      rows: median(rs.map((r) => r.rows)) ?? 1,
    };
  }

  /* Acceptance by level: at how many levels was some candidate tried, and at how many was one kept. In a chain this is
     accepted / tried; in a tree a level counts once, however many siblings were examined. */
  function levels(l) {
    const by = l.metrics.per_position,
      tried = sum(by.map((p) => p.tried)),
      kept = sum(by.map((p) => p.accepted));
    return { tried, kept, alpha: tried ? kept / tried : null };
  }

  /* The lane that a panel speaks about: the one in focus if it drafts, else the first that does. */
  function focus(all, where) {
    const drafts = all.filter((l) => !l.baseline && l.rounds.some((r) => r.nodes.length));
    return drafts.find((l) => where && l.id === where.lane) || drafts[0] || null;
  }

  P.traceLanes = { lanes, costs, levels, focus };
})();
