/* Every record is brought into shape before it is folded: fields of the right type or null, lists cut to their caps. A
   trace may come from anywhere; every field that leaves this file has a known type. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const NODES = 4096,
    TOP = 256,
    ROUNDS = 100_000;

  const PARTS = ["draft", "verify", "judge", "cache", "other"];

  const num = (x) => (typeof x === "number" && Number.isFinite(x) ? x : null);
  const int = (x, other) => (Number.isInteger(x) ? x : other);
  const str = (x, most = 4000) => (typeof x === "string" ? x.slice(0, most) : typeof x === "number" ? String(x) : "");
  const obj = (x) => (x && typeof x === "object" && !Array.isArray(x) ? x : {});
  const arr = (x, most = Infinity) => (Array.isArray(x) ? (x.length > most ? x.slice(0, most) : x) : []);
  const prob = (x) => {
    const n = num(x);
    return n === null ? null : Math.min(1, Math.max(0, n));
  };
  const probPairs = (x) =>
    Array.isArray(x)
      ? arr(x, TOP)
          .filter((p) => Array.isArray(p) && Number.isInteger(p[0]) && num(p[1]) !== null)
          .map((p) => [p[0], prob(p[1])])
      : null;
  const oneOf = (x, list, other) => (list.includes(x) ? x : other);
  const span = (r) => {
    const t0 = num(r.t0) ?? 0;
    return { t0, t1: Math.max(t0, num(r.t1) ?? t0) };
  };

  function node(n, id, all) {
    n = obj(n);
    const up = int(n.parent, -1);
    const src =
      n.src && typeof n.src === "object"
        ? { source: str(n.src.source, 60), start: num(n.src.start), end: num(n.src.end) }
        : null;
    return {
      id,
      parent: up >= 0 && up < id ? up : -1,
      tok: int(n.tok, -1),
      q: prob(n.q),
      how: str(n.how, 40),
      top: probPairs(n.top),
      softmax_q: prob(n.softmax_q),
      top_softmax: probPairs(n.top_softmax),
      src,
      probe: n.probe === true,
      depth: 1,
      kids: [],
    };
  }
  function nodes(list) {
    const out = arr(list, NODES).map(node);
    for (const n of out)
      if (n.parent >= 0) {
        n.depth = out[n.parent].depth + 1;
        out[n.parent].kids.push(n.id);
      }
    return out;
  }

  /* What the tokens are: text, patches of a picture in raster order, or patches of its scales, coarse to fine. */
  function outputOf(x) {
    const small = (n) => (Number.isInteger(n) && n > 0 && n <= 64 ? n : 0),
      o = obj(x),
      [columns, rows, side] = [o.columns, o.rows, o.patch].map(small),
      grids = arr(o.grids, 16).map(small);
    if (o.kind === "scales" && side && grids.length && grids.every((g, i) => g > (grids[i - 1] || 0)))
      return { kind: "scales", grids, side };
    return o.kind === "patches" && columns && rows && side
      ? { kind: "patches", columns, rows, side }
      : { kind: "text" };
  }

  /* The picture before the prompt, {src, hidden: whether it was hidden from the target}; null without one. Only the data URL
     of a small PNG is taken: its size is in its first bytes and is checked before a browser decodes anything. */
  const PNG = /^data:image\/png;base64,(iVBORw0KGgo[A-Za-z0-9+/]{33})[A-Za-z0-9+/]{0,60000}={0,2}$/,
    SIDE = 512;
  function pictureOf(x) {
    const { image, hide_image } = obj(x),
      head = typeof image === "string" ? PNG.exec(image) : null;
    if (!head) return null;
    const bytes = Array.from(atob(head[1]), (c) => c.charCodeAt(0)),
      side = (at) => bytes.slice(at, at + 4).reduce((n, b) => n * 256 + b, 0);
    return [16, 20].every((at) => side(at) > 0 && side(at) <= SIDE)
      ? { src: image, hidden: hide_image === true }
      : null;
  }

  const SHAPE = {
    header: (r) => ({
      run_id: str(r.run_id, 200),
      created: str(r.created, 60),
      mode: oneOf(r.mode, ["live", "recorded", "simulated"], "recorded"),
      clock: oneOf(r.clock, ["engine", "client"], "engine"),
      knobs: obj(r.knobs),
      method: {
        key: str(obj(r.method).key, 80),
        title: str(obj(r.method).title, 80),
        family: str(obj(r.method).family, 80),
        exactness: str(obj(r.method).exactness, 40),
        bound: obj(r.method).bound === true,
        needs: Array.isArray(obj(r.method).needs) ? arr(r.method.needs, 100).map((need) => str(need, 80)) : null,
      },
      prompt: {
        text: str(obj(r.prompt).text, 100_000),
        ids: arr(obj(r.prompt).ids, 100_000).filter(Number.isInteger),
        turns: arr(obj(r.prompt).turns, 400).map((t) => ({
          role: str(obj(t).role, 40),
          text: str(obj(t).text ?? obj(t).content, 100_000),
        })),
      },
      target: r.target
        ? {
            name: str(obj(r.target).name, 120),
            parameters: num(obj(r.target).parameters),
            nature: "nature" in obj(r.target) ? str(r.target.nature, 300) : null,
          }
        : null,
      draft: r.draft ? { name: str(obj(r.draft).name, 120) } : null,
      max_new_tokens: Math.max(0, int(r.max_new_tokens, 0)),
      env: {
        machine: str(obj(r.env).machine, 120),
        device: str(obj(r.env).device, 40),
        dtype: str(obj(r.env).dtype, 40),
        specviz: str(obj(r.env).specviz, 20),
        threads: int(obj(r.env).threads, 0),
        pass_seconds: num(obj(r.env).pass_seconds),
      },
      output: outputOf(r.output),
      picture: pictureOf(r.request),
      sampling: obj(r.sampling),
      answer: r.answer
        ? { index: Math.max(0, int(obj(r.answer).index, 0)), of: Math.max(1, int(obj(r.answer).of, 1)) }
        : null,
      about: r.about ? { title: str(obj(r.about).title, 120), text: str(obj(r.about).text, 400) } : null,
    }),
    prefill: (r) => ({ ...span(r), n: int(r.n, 0) }),
    draft: (r) => ({ ...span(r), kind: oneOf(r.kind, ["none", "chain", "tree"], "tree"), nodes: nodes(r.nodes) }),
    verify: (r) => ({ ...span(r), n_in: int(r.n_in, 0) }),
    judge: (r) => ({
      node: int(r.node, -1),
      rule: str(r.rule, 40),
      p: prob(r.p),
      q: prob(r.q),
      a: prob(r.a),
      u: prob(r.u),
      verdict: oneOf(r.verdict, ["accepted", "rejected", "skipped"], "skipped"),
      top_p: probPairs(r.top_p),
      resid: probPairs(r.resid),
      softmax_p: prob(r.softmax_p),
      top_softmax: probPairs(r.top_softmax),
    }),
    commit: (r) => {
      const tail = obj(r.tail),
        kv =
          r.kv && typeof r.kv === "object"
            ? { before: int(r.kv.before, 0), after: int(r.kv.after, 0), dropped: int(r.kv.dropped, 0) }
            : null;
      return {
        t: num(r.t),
        path: arr(r.path, NODES).filter(Number.isInteger),
        n_new: Math.max(0, int(r.n_new, 0)),
        kv,
        tail: {
          tok: int(tail.tok, -1),
          why: str(tail.why, 40) || "plain",
          p: prob(tail.p),
          top: probPairs(tail.top),
          softmax_p: prob(tail.softmax_p),
          top_softmax: probPairs(tail.top_softmax),
        },
      };
    },
    text: (r) => ({ pieces: arr(r.pieces, NODES).map((p) => ({ tok: int(obj(p).tok, -1), b: str(obj(p).b, 4096) })) }),
    timing: (r) => {
      const parts = PARTS.map((k) => Math.max(0, num(r[k + "_ns"]) ?? 0) / 1e9);
      return { parts, ns: PARTS.reduce((s, k) => s + Math.max(0, num(r[k + "_ns"]) ?? 0), 0) };
    },
    lens: (r) => ({ kind: str(r.kind, 60), data: obj(r.data) }),
    check: (r) => ({ kind: str(r.kind, 60), detail: obj(r.detail) }),
    stop: (r) => ({ why: str(r.why, 400) }),
    error: (r) => ({ why: str(r.why, 400) }),
    done: (r) => ({ finish: str(r.finish, 40), totals: obj(r.totals) }),
    vocab: (r) => ({ tokens: obj(r.tokens), special: arr(r.special).filter(Number.isInteger) }),
  };
  const IN_ROUND = new Set(["draft", "verify", "judge", "commit", "text", "timing", "lens"]);

  /* The record in shape, or null where it is none. */
  function shape(rec) {
    if (!rec || typeof rec !== "object" || !Number.isInteger(rec.lane) || rec.lane < 0 || rec.lane > 63) return null;
    const make = Object.hasOwn(SHAPE, String(rec.type)) ? SHAPE[rec.type] : null;
    const head = { type: rec.type, seq: rec.seq, lane: rec.lane };
    if (!make) return head;
    if (IN_ROUND.has(rec.type) && !(Number.isInteger(rec.round) && rec.round >= 0 && rec.round < ROUNDS)) return null;
    return { ...head, round: rec.round, ...make(rec) };
  }

  SV.shape = { shape, num, PARTS };
})();
