/* The sums of the Lab, without a page: the speed-up formula and its gap, the cost curve, the what-if walk, the roofline.
   Leviathan et al. 2211.17192 for the formula; Williams et al. 2009 for the roofline. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { finite, sum, mean, clamp } = P.kit;

  /* Expected tokens a round when each of gamma drafts is accepted with chance alpha, each by itself. */
  const tokensPerRound = (alpha, gamma) => (alpha >= 1 - 1e-12 ? gamma + 1 : (1 - alpha ** (gamma + 1)) / (1 - alpha));
  /* ... and the speed-up when a draft step costs c target passes and a pass costs the same however many rows it reads. */
  const predicted = (alpha, gamma, c) => tokensPerRound(alpha, gamma) / (c * gamma + 1);

  /* From prediction to measurement in three steps; each difference has one cause. The steps add up exactly:
     formula -> measured tokens a round -> measured cost of the passes -> everything else. */
  function gap(lane) {
    const base = lane.base,
      rs = lane.rounds.filter((r) => r.verify > 0);
    if (!base || !rs.length) return null;
    const bs = base.rounds.filter((r) => r.verify > 0);
    const total = (list, f) => sum(list.map(f));
    const secondsOf = (l, list) =>
      SpecViz.metrics.decodeSeconds(l.folded, l.folded.committed) ?? total(list, (r) => r.draft + r.verify + r.other);
    const pass = bs.length ? total(bs, (r) => r.verify) / bs.length : 0,
      alpha = P.traceLanes.levels(lane).alpha;
    const tokens = total(rs, (r) => r.n),
      n = rs.length,
      seconds = secondsOf(lane, rs),
      perPlain =
        secondsOf(base, bs) /
        Math.max(
          1,
          total(bs, (r) => r.n),
        );
    if (!(pass > 0) || !(seconds > 0) || !tokens || alpha === null) return null;
    const gamma = total(rs, (r) => r.depth) / n,
      draft = total(rs, (r) => r.draft) / n,
      verify = total(rs, (r) => r.verify) / n;
    const c = gamma > 0 ? draft / gamma / pass : 0,
      tau = tokens / n,
      v = verify / pass;
    const formula = predicted(alpha, gamma, c),
      real = tau / (c * gamma + 1),
      rows = tau / (c * gamma + v),
      measured = (perPlain * tokens) / seconds;
    return {
      alpha,
      gamma,
      c,
      tau,
      v,
      pass,
      formula,
      measured,
      iid: tokensPerRound(alpha, gamma),
      steps: [
        { key: "acceptance", by: real - formula },
        { key: "rows", by: rows - real },
        { key: "overhead", by: measured - rows },
      ],
    };
  }

  /* Seconds of a pass by rows read, from a trace's own passes: the mean at each count, made rising, straight lines
     between, and beyond the last count the slope of a least-squares line. {at(rows), points, from, to} */
  function curveOf(lanes) {
    const by = new Map();
    for (const l of lanes)
      for (const r of l.rounds)
        if (r.verify > 0) {
          if (!by.has(r.rows)) by.set(r.rows, []);
          by.get(r.rows).push(r.verify);
        }
    const points = [...by]
      .map(([rows, list]) => ({ rows, seconds: mean(list), n: list.length }))
      .sort((a, b) => a.rows - b.rows);
    return curve(points);
  }
  /* The rising line nearest to the points: neighbours that fall share their mean, so that one slow moment lifts no others. */
  function rising(ys, w) {
    const out = [];
    ys.forEach((y, i) => {
      let last = { y, w: w[i], n: 1 };
      for (let p = out[out.length - 1]; p && p.y > last.y; p = out[out.length - 1]) {
        out.pop();
        last = { y: (p.y * p.w + last.y * last.w) / (p.w + last.w), w: p.w + last.w, n: p.n + last.n };
      }
      out.push(last);
    });
    return out.flatMap((b) => new Array(b.n).fill(b.y));
  }
  function curve(points) {
    if (!points.length) return null;
    const xs = points.map((p) => p.rows),
      w = points.map((p) => p.n || 1),
      ys = rising(
        points.map((p) => p.seconds),
        w,
      );
    const W = sum(w),
      mx = sum(xs.map((x, i) => x * w[i])) / W,
      my = sum(points.map((p, i) => p.seconds * w[i])) / W;
    const vx = sum(xs.map((x, i) => w[i] * (x - mx) ** 2)),
      slope = vx > 0 ? Math.max(0, sum(xs.map((x, i) => w[i] * (x - mx) * (points[i].seconds - my))) / vx) : 0;
    function at(rows) {
      const n = xs.length;
      if (rows <= xs[0]) return Math.max(ys[0] - slope * (xs[0] - rows), ys[0] * 0.25);
      if (rows >= xs[n - 1]) return ys[n - 1] + slope * (rows - xs[n - 1]);
      let i = 1;
      while (xs[i] < rows) i++;
      return ys[i - 1] + ((ys[i] - ys[i - 1]) * (rows - xs[i - 1])) / (xs[i] - xs[i - 1]);
    }
    return { at, points, from: xs[0], to: xs[xs.length - 1], one: at(1), slope };
  }

  /* For each place of the output: was the draft right there? 1 yes, 0 no, null it was never asked (a bonus token, or a
     round that drafted nothing). `rank`: the right token's place among its siblings; -1 where no sibling was right. */
  function answers(lane) {
    const hit = [],
      rank = [];
    for (const r of lane.rounds) {
      for (let j = 0; j < r.n; j++) {
        const id = r.path[j],
          node = id !== undefined ? r.all[id] : null;
        if (node) {
          const kids =
            node.parent < 0
              ? r.all.filter((n) => n.parent < 0)
              : node.kids && r.all[node.parent].kids.map((k) => r.all[k]);
          hit.push(1);
          rank.push(
            Math.max(
              0,
              kids.filter((n) => !n.probe).findIndex((n) => n.id === id),
            ),
          );
        } else {
          const end = r.path.length ? r.path[r.path.length - 1] : -1,
            asked = r.why === "accepted" || r.nodes.some((n) => n.parent === end);
          hit.push(r.why === "accepted" ? 1 : asked ? 0 : null);
          rank.push(r.why === "accepted" ? 0 : asked ? -1 : null);
        }
      }
    }
    return { hit, rank };
  }

  /* Walk an output with drafts of `gamma` levels and at most `width` siblings: where does each round begin, how many
     rounds are there? Unknown places count as `unknown` (0 or 1). More right places never make more rounds, so the walks
     with 0 and with 1 bound every truth between them. */
  function walk({ hit, rank }, { gamma, width = Infinity, unknown = 0 }) {
    const n = hit.length,
      starts = [],
      right = (t) => (hit[t] === null ? unknown === 1 : hit[t] === 1 && rank[t] < width);
    for (let s = 0; s < n;) {
      starts.push(s);
      const most = Math.min(gamma, n - s - 1);
      let k = 0;
      while (k < most && right(s + k)) k++;
      s += k + 1;
    }
    return starts;
  }

  /* The run again with other settings. Costs: seconds of a draft step, of a pass by rows, of the rest of a round.
     `same`: leading rounds that begin and end where they did, so they are the recorded ones. */
  function whatIf(lane, { gamma, width = Infinity, price = 1 }, curveAt) {
    const a = answers(lane),
      cost = P.traceLanes.costs(lane),
      n = a.hit.length;
    const rows = 1 + drafted(shapeOf(lane), gamma, width),
      perRound = gamma * cost.step * price + curveAt(rows) + cost.other;
    const walks = [0, 1].map((unknown) => walk(a, { gamma, width, unknown })),
      real = lane.rounds.map((r) => r.from);
    const [low, high] = walks.map((w) => ({
      rounds: w.length,
      seconds: w.length * perRound,
      tau: n / w.length,
      rate: n / (w.length * perRound),
    }));
    const ends = (starts, i) => (i < starts.length ? (starts[i + 1] ?? n) : -1);
    let same = 0;
    while (same < real.length && walks.every((w) => w[same] === real[same] && ends(w, same) === ends(real, same)))
      same++;
    return { low, high, rows, perRound, same, unknown: a.hit.filter((x) => x === null).length, places: n };
  }

  /* The recorded drafts' own shape: levels, siblings, and how many nodes of each level stay when only the first w siblings
     may (kept[w - 1]). Long runs are sampled evenly. */
  function shapeOf(lane) {
    let rs = lane.rounds.filter((r) => r.nodes.length);
    if (rs.length > 400) {
      const every = rs.length / 400;
      rs = Array.from({ length: 400 }, (_, i) => rs[Math.floor(i * every)]);
    }
    const places = rs.map(placesOf),
      width = 1 + Math.max(0, ...places.map((p) => Math.max(0, ...p)));
    const depth = Math.max(1, ...rs.map((r) => r.depth)),
      levels = Array.from({ length: depth }, () => new Array(width).fill(0));
    rs.forEach((r, i) => {
      for (const n of r.nodes) for (let w = places[i][n.id]; w < width; w++) levels[n.depth - 1][w] += 1 / rs.length;
    });
    return { width, depth, levels, chain: width === 1, nodes: mean(rs.map((r) => r.nodes.length)) ?? 0 };
  }
  /* A node stays when it and every node above it is among the first siblings: its worst place on the way decides. */
  function placesOf(r) {
    const out = new Array(r.all.length).fill(0),
      born = new Map();
    for (const n of r.all) {
      if (n.probe) continue;
      const mine = born.get(n.parent) || 0;
      born.set(n.parent, mine + 1);
      out[n.id] = Math.max(mine, n.parent >= 0 ? out[n.parent] : 0);
    }
    return out;
  }
  /* Nodes a draft of these settings holds. A chain may grow beyond what was recorded; a tree only shrinks. */
  function drafted(shape, gamma, width = Infinity) {
    if (shape.chain) return gamma;
    const w = clamp(Math.round(Math.min(width, shape.width)), 1, shape.width) - 1;
    return sum(shape.levels.slice(0, gamma).map((level) => level[w]));
  }

  /* One pass on a machine: the weights cross the memory bus once, the arithmetic grows with the rows. */
  function passTime({ parameters, bytes, bandwidth, flops, rows, batch = 1 }) {
    const read = (parameters * bytes) / bandwidth,
      work = (2 * parameters * rows * batch) / flops;
    return { read, work, seconds: Math.max(read, work), bound: read >= work ? "memory" : "arithmetic" };
  }
  /* What an acceptance would mean there: tau tokens a round, gamma draft steps, `rows` rows a pass. */
  function roofline({ target, draft, bytes, bandwidth, flops, tau, gamma, rows, batch = 1 }) {
    const m = { bytes, bandwidth, flops, batch };
    const plain = passTime({ ...m, parameters: target, rows: 1 }),
      verify = passTime({ ...m, parameters: target, rows }),
      step = draft > 0 ? passTime({ ...m, parameters: draft, rows: 1 }) : { seconds: 0 };
    const round = gamma * step.seconds + verify.seconds;
    return {
      plain,
      verify,
      step,
      round,
      speedup: (tau * plain.seconds) / round,
      rate: tau / round,
      plainRate: 1 / plain.seconds,
      ridge: (flops * bytes) / (2 * bandwidth),
    };
  }

  /* Shares of a chi-square: how much each cell adds. Cells that expect too few are joined, as the test joins them. */
  function cells(counts, probs, least = 5) {
    const n = sum(counts),
      out = [],
      rare = { i: -1, count: 0, expect: 0 };
    counts.forEach((c, i) => {
      const e = (finite(probs[i]) ? probs[i] : 0) * n;
      if (e >= least) out.push({ i, count: c, expect: e, add: (c - e) ** 2 / e });
      else {
        rare.count += c;
        rare.expect += e;
      }
    });
    out.sort((a, b) => b.expect - a.expect);
    if (rare.count || rare.expect > 0.5)
      out.push({ ...rare, add: rare.expect > 0 ? (rare.count - rare.expect) ** 2 / rare.expect : null });
    return out;
  }

  /* Whether a longer draft than the recorded one would have been faster. points: [{gamma, low, high}], low and high the
     speeds with every unknown guess wrong and right. {kind: "yes" | "perhaps" | "no", best, last, recorded}, null where
     there is nothing longer. */
  function longerDraft(points, gamma) {
    const recorded = points.find((q) => q.gamma === gamma),
      longer = points.filter((q) => q.gamma > gamma);
    if (!recorded || !longer.length) return null;
    const best = (key) => longer.reduce((a, b) => (b[key] > a[key] ? b : a)),
      sure = best("low"),
      perhaps = best("high"),
      kind = sure.low > recorded.high ? "yes" : perhaps.high > recorded.low ? "perhaps" : "no";
    return { kind, best: kind === "yes" ? sure : perhaps, last: longer.at(-1), recorded };
  }

  P.maths = {
    tokensPerRound,
    predicted,
    gap,
    curveOf,
    curve,
    answers,
    walk,
    whatIf,
    longerDraft,
    shapeOf,
    drafted,
    passTime,
    roofline,
    cells,
  };
})();
