/* The trace, folded: (state, record) -> state. No page, no clock, no randomness, so replaying in any chunking gives the
   same state, and a scrubbed view (`at`, `picture`) is the same as a fold of the prefix. The fold owns its state:
   a step returns the object it was given. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const T = SV.text;
  /** @type {Record<string, "acc" | "rej" | "ski">} */
  const VERDICT = { accepted: "acc", rejected: "rej", skipped: "ski" };
  const { shape, num } = SV.shape;
  const { TAIL, zero, totals } = SV.totals;

  /** @returns {Folded} */
  const initial = () => ({ lanes: new Map(), order: [], records: 0, bad: 0 });
  /** @param {number} id @returns {Lane} */
  const newLane = (id) => ({
    id,
    header: null,
    vocab: new Map(),
    labels: new Map(),
    special: new Set(),
    prefill: null,
    rounds: [],
    ends: [],
    tokens: [],
    carry: [],
    committed: 0,
    seen: 0,
    lastSeq: -1,
    lens: 0,
    checks: [],
    stop: null,
    error: null,
    done: null,
    last: -1,
    byDepth: null,
  });
  /** @param {number} i @returns {Round} */
  const newRound = (i) => ({
    i,
    draft: null,
    nodes: [],
    kind: "none",
    verify: null,
    passes: 0,
    rows: 0,
    judges: new Map(),
    tests: [],
    trials: [],
    commit: null,
    path: [],
    why: "",
    pieces: null,
    first: 0,
    upto: 0,
    timing: null,
    lens: [],
    sum: null,
    seen: null,
  });
  /** @param {Folded} state @param {unknown} raw */
  function step(state, raw) {
    const rec = shape(raw);
    if (!rec) {
      state.bad++;
      return state;
    }
    let lane = state.lanes.get(rec.lane);
    if (!lane) {
      lane = newLane(rec.lane);
      state.lanes.set(rec.lane, lane);
      state.order.push(rec.lane);
      state.order.sort((a, b) => a - b);
    }
    if (Number.isInteger(rec.seq)) {
      if (rec.seq <= lane.lastSeq) return state;
      lane.lastSeq = rec.seq;
    }
    state.records++;
    lane.seen++;
    const how = Object.hasOwn(HOW, String(rec.type)) ? HOW[rec.type] : null;
    if (!how) return state; /* an unknown type is a newer writer's business */
    try {
      how(lane, rec);
    } catch {
      state.bad++;
    }
    return state;
  }

  /** @param {Lane} lane @param {any} rec */
  function round(lane, rec) {
    const i = rec.round;
    if (i > lane.rounds.length + 4096) throw new Error("round");
    while (lane.rounds.length <= i) lane.rounds.push(newRound(lane.rounds.length));
    return lane.rounds[i];
  }

  /** @type {Record<string, (lane: Lane, rec: any) => void>} */
  const HOW = {
    header(lane, rec) {
      lane.header = rec;
    },
    vocab(lane, rec) {
      for (const [id, b64] of Object.entries(rec.tokens)) lane.vocab.set(Number(id), b64);
      for (const id of rec.special) lane.special.add(id);
    },
    prefill(lane, rec) {
      const old = lane.prefill;
      lane.prefill = { t0: old ? old.t0 : rec.t0, t1: rec.t1, n: (old ? old.n : 0) + rec.n };
    },
    draft(lane, rec) {
      const r = round(lane, rec);
      r.draft = rec;
      r.kind = rec.kind;
      r.nodes = rec.nodes;
    },
    verify(lane, rec) {
      /* a drafter that runs the whole target has several passes in a round; the last checks the draft */
      const r = round(lane, rec);
      r.verify = rec;
      r.passes++;
      r.rows += rec.n_in;
    },
    judge(lane, rec) {
      const r = round(lane, rec);
      if (!r.nodes[rec.node]) throw new Error("node");
      r.judges.set(rec.node, rec);
      if (rec.verdict !== "skipped") {
        r.tests.push(rec.node);
        r.trials.push(rec);
      }
    },
    commit(lane, rec) {
      const r = round(lane, rec);
      r.commit = rec;
      r.path = rec.path.filter((id) => r.nodes[id]);
      r.why = rec.tail.why;
      lane.ends[r.i] = rec.t;
      lane.committed = Math.max(lane.committed, r.i + 1);
      /* Updates may be missing until the snapshot: the totals go on from the last round that has any. */
      const before = lane.rounds[Math.min(lane.last, r.i - 1)],
        last = before && before.sum ? before : null;
      lane.last = r.i;
      if (lane.byDepth && lane.byDepth.k > r.i) lane.byDepth = null;
      r.sum = totals(r, last ? last.sum : zero(), !last || Boolean(last.timing));
      if (r.pieces) write(lane, r);
    },
    text(lane, rec) {
      const r = round(lane, rec);
      r.pieces = rec.pieces;
      if (r.commit) write(lane, r);
    },
    timing(lane, rec) {
      const r = round(lane, rec);
      r.timing = rec;
      if (!r.sum) return;
      if (r.sum.seconds !== null) r.sum.seconds += rec.ns / 1e9;
      r.sum.parts = r.sum.parts.map((x, k) => x + rec.parts[k]);
    },
    lens(lane, rec) {
      round(lane, rec).lens.push(rec);
      lane.lens++;
    },
    check(lane, rec) {
      lane.checks.push(rec);
    },
    stop(lane, rec) {
      lane.stop = rec;
    },
    error(lane, rec) {
      lane.error = rec;
    },
    done(lane, rec) {
      lane.done = rec;
    },
  };

  /* The committed pieces become tokens. Bytes are joined over token borders: a character belongs to the token that
     completes it, the earlier ones are marked `part`, and what is still open at the end waits in `carry`. */
  /** @param {Lane} lane @param {Round} r */
  function write(lane, r) {
    r.first = lane.tokens.length;
    r.pieces.forEach((piece, j) => {
      const { parts, carry } = SV.output.of(lane).decode(lane.carry.concat(T.bytesOf(piece.b)));
      const onPath = j < r.path.length;
      lane.carry = carry;
      lane.tokens.push({
        i: lane.tokens.length,
        tok: piece.tok,
        round: r.i,
        node: onPath ? r.path[j] : r.why === "accepted" ? childOf(r, piece.tok) : "tail",
        v: onPath ? "acc" : TAIL[r.why] || "pla",
        parts,
        carry: carry.length ? carry : null,
        special: lane.special.has(piece.tok),
      });
    });
    r.upto = lane.tokens.length;
    r.pieces = null;
  }

  /* A run cut short inside the draft: its last token is a drafted one, below the end of the path. */
  /* The id of the drafted node that is the round's last token, or null where the target wrote that token itself. */
  /** @param {Round} r */
  function tailNode(r) {
    if (!r.commit || r.why !== "accepted") return null;
    const id = childOf(r, r.commit.tail.tok);
    return id === "tail" ? null : id;
  }
  /** @param {Round} r @param {number} tok */
  function childOf(r, tok) {
    const end = r.path.length ? r.path[r.path.length - 1] : -1,
      n = r.nodes.find((x) => x.parent === end && x.tok === tok);
    return n ? n.id : "tail";
  }

  /** @param {Iterable<unknown>} records @param {Folded} [state] */
  const fold = (records, state = initial()) => {
    for (const rec of records) step(state, rec);
    return state;
  };

  /* What has a node become? dra (not judged yet), acc, rej, ski. */
  /** @param {Round} r @param {number} id @param {number} [phase] */
  function verdictOf(r, id, phase = 4) {
    if (phase < 3) return "dra";
    const j = r.judges.get(id);
    return j ? VERDICT[j.verdict] || "ski" : r.commit ? (r.path.includes(id) ? "acc" : "ski") : "dra";
  }

  /* A cursor on one lane: k rounds are committed, and the next one has reached `phase`
     (0 none, 1 drafted, 2 being verified, 3 judged). Cursors: "end", {round, phase} or {t} on the engine's clock. */
  /** @param {Lane} lane @param {Cursor} cur */
  function at(lane, cur) {
    const n = lane.committed;
    if (cur === "end") return { k: n, phase: phaseNow(lane.rounds[n]) };
    if ("t" in cur) return atTime(lane, cur.t);
    const k = Math.max(0, Math.min(cur.round, n - 1));
    return cur.phase >= 4 ? { k: Math.min(n, k + 1), phase: 0 } : { k, phase: cur.phase };
  }
  /** @param {Round} r */
  const phaseNow = (r) => (!r ? 0 : r.judges.size ? 3 : r.verify ? 2 : r.draft && r.nodes.length ? 1 : 0);
  /** @param {Lane} lane @param {number} t */
  function atTime(lane, t) {
    let lo = 0,
      hi = lane.committed;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if ((endOf(lane, mid) ?? Infinity) <= t + 1e-9) lo = mid + 1;
      else hi = mid;
    }
    const r = lane.rounds[lo];
    if (!r || !r.draft) return { k: lo, phase: 0 };
    const v = r.verify;
    return {
      k: lo,
      phase:
        v && t >= v.t1 ? 3 : v && t >= v.t0 && t > r.draft.t0 ? 2 : t < (r.draft.t1 ?? 0) || !r.nodes.length ? 0 : 1,
    };
  }
  /** @param {Lane} lane @param {number} i */
  const endOf = (lane, i) => {
    const own = lane.ends[i];
    if (own !== undefined && own !== null) return own; /* nearly always: asked for every round of every painting */
    for (let j = i; j >= 0; j--) {
      const r = lane.rounds[j];
      if (r && r.commit && num(r.commit.t) !== null) return r.commit.t;
      if (i >= lane.committed) break;
    }
    return null;
  };
  /** @param {Lane} lane @param {number} i */
  const startOf = (lane, i) => {
    const r = lane.rounds[i];
    return (r && r.draft && num(r.draft.t0)) ?? (i > 0 ? endOf(lane, i - 1) : lane.prefill && lane.prefill.t1) ?? 0;
  };
  /** @param {Lane} lane @param {number} k */
  const sumAt = (lane, k) => {
    for (let i = k - 1; i >= 0; i--) if (lane.rounds[i] && lane.rounds[i].sum) return lane.rounds[i].sum;
    return zero();
  };
  /** @param {Lane} lane @param {number} k */
  const upto = (lane, k) => {
    for (let i = k - 1; i >= 0; i--) if (lane.rounds[i].upto) return lane.rounds[i].upto;
    return 0;
  };

  /** @param {Lane} lane @param {number} tok @param {number} [max] */
  function label(lane, tok, max) {
    const key = tok + "/" + (max || "");
    if (lane.labels.has(key)) return lane.labels.get(key);
    const known = lane.vocab.has(tok);
    const s = known
      ? SV.output.of(lane).label(T.bytesOf(lane.vocab.get(tok)), tok, max)
      : tok === -1
        ? "\u25a1"
        : "#" + tok;
    if (known || tok === -1) lane.labels.set(key, s);
    return s;
  }

  /* Everything a view of this lane may show at this cursor, as plain data: what tests compare. */
  /** @param {Lane} lane @param {Cursor} cur */
  function picture(lane, cur) {
    const { k, phase } = at(lane, cur);
    const shown = lane.rounds.slice(0, k).map((r) => ({
      nodes: r.nodes.map((n) => [n.parent, n.depth, label(lane, n.tok), verdictOf(r, n.id)]),
      path: r.path,
      why: r.why,
      sum: r.sum,
      seen: r.seen && [...r.seen],
      span: [r.first, r.upto],
      lens: r.lens.map((x) => [x.kind, x.data]),
    }));
    const next = phase
      ? lane.rounds[k].nodes.map((n) => [n.parent, label(lane, n.tok), verdictOf(lane.rounds[k], n.id, phase)])
      : null;
    return {
      lane: lane.id,
      k,
      phase,
      tokens: lane.tokens.slice(0, upto(lane, k)).map((t) => [t.tok, t.v, t.node, T.joined(t.parts), t.carry]),
      shown,
      next,
    };
  }

  SV.fold = { initial, step, fold, at, picture, verdictOf, tailNode, label, startOf, endOf, sumAt, upto, zero };
})();
