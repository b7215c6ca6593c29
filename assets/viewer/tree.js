/* The draft tree of one round, as SVG: a chain lies in a row with its tests under it, a tree grows to the right.
   At most NODES nodes are drawn; the accepted path and everything that was tested are never left out. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { el, svg, f2, f3, count } = SV.dom;
  const NODES = 56,
    CW = 7.25,
    SMALL = 6.7,
    HEAD = 6.1; /* widths of a character: 12 px mono, 11 px mono, 11 px sans */
  const EVERY = 256;
  const WORD = { acc: "accepted", rej: "rejected", ski: "not examined", dra: "drafted" };
  const TAILS = {
    bonus: "\u2605 bonus",
    correction: "correction",
    plain: "plain",
    accepted: "accepted",
    unchecked: "unchecked",
    forced: "forced",
    small: "small model",
  };
  const tailClass = (why) =>
    why === "bonus" ? "bon" : why === "correction" ? "cor" : why === "accepted" ? "acc" : "pla";

  /* Columns a monospaced label takes: CJK and emoji take two. */
  const columns = (ch) =>
    /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60]|\p{Extended_Pictographic}/u.test(
      ch,
    )
      ? 2
      : 1;
  const wide = (s, cw = CW) => Array.from(s).reduce((n, ch) => n + columns(ch), 0) * cw;
  const said = (s) => s.length * HEAD;
  /* As much of a label as fits. */
  function clip(s, room, cw) {
    if (wide(s, cw) <= room) return s;
    let out = "";
    for (const ch of Array.from(s)) {
      if (wide(out + ch + "\u2026", cw) > room) break;
      out += ch;
    }
    return out + "\u2026";
  }
  const text = (x, y, s, cls, anchor) => svg("text", { x, y, class: cls, "text-anchor": anchor }, s);

  function box(x, y, w, h, opt) {
    const g = svg("g", {
      class: "node " + opt.cls + (opt.sel ? " sel" : ""),
      tabindex: -1,
      role: "button",
      "data-node": opt.id,
      "data-v": SV.stage.SAYS[opt.cls],
      "aria-label": opt.label + (opt.q === null ? "" : " " + f2(opt.q) + " draft probability") + ", " + opt.say,
    });
    g.append(
      svg("rect", { class: "ring", x: x - 3, y: y - 3, width: w + 6, height: h + 6, rx: 7 }),
      svg("rect", { class: "box", x, y, width: w, height: h, rx: 4 }),
      text(x + 8, y + h / 2 + 4, opt.label, "w"),
    );
    if (opt.q !== null) {
      const q = text(x + w - 7, y + h / 2 + 3.5, " " + f2(opt.q), "q", "end");
      g.append(q);
    }
    return g;
  }
  const LONG = 14;
  const nodeBox = (v, n, x, y, w, h, q) => {
    const cls = SV.fold.verdictOf(v.round, n.id, v.phase);
    return box(x, y, w, h, {
      cls,
      id: n.id,
      say: WORD[cls],
      label: SV.fold.label(v.lane, n.tok, v.long || LONG),
      q,
      sel: v.sel === n.id,
    });
  };
  /* Whether the round's last token needs a box of its own: an accepted one that ended the run has its node already. */
  function tailed(v) {
    const r = v.round,
      last = r.path.length ? r.path[r.path.length - 1] : -1;
    return r.commit && !(r.why === "accepted" && r.nodes.some((n) => n.parent === last && n.tok === r.commit.tail.tok));
  }
  function tailBox(v, x, y, h) {
    const t = v.round.commit.tail,
      label = SV.fold.label(v.lane, t.tok, v.long || LONG),
      w = wide(label) + 18,
      cls = tailClass(v.round.why);
    return {
      w,
      cls,
      g: box(x, y, w, h, {
        cls,
        id: "tail",
        say: TAILS[v.round.why] || v.round.why,
        label,
        q: null,
        sel: v.sel === "tail",
      }),
    };
  }
  function root(v, x, y) {
    const prev = v.round.i
      ? (v.lane.tokens[v.round.first - 1] ?? v.lane.tokens[SV.fold.upto(v.lane, v.round.i) - 1])
      : null;
    const name = prev ? clip(SV.text.label(prev.parts, 6), x, SMALL) : "prompt";
    return [
      svg("circle", { class: "rootdot", cx: x, cy: y, r: 4 }),
      text(x + 4, y - 10, "after", "hd", "end"),
      text(x + 4, y + 20, name, "alt", "end"),
    ];
  }

  /* Which nodes to draw when there are too many rows: path and tests always, then the likeliest, parents with them. */
  function chosen(v, rows) {
    const up = v.round.nodes,
      all = up.filter((n) => !n.probe),
      keep = new Set(),
      busy = new Set();
    const verdict = (n) => SV.fold.verdictOf(v.round, n.id, 4);
    const rank = (n) =>
      (verdict(n) === "acc" ? 400 : verdict(n) === "rej" ? 300 : 0) - n.depth * 10 + (n.q || 0) - n.id * 1e-4;
    let used = 1;
    for (const n of [...all].sort((a, b) => rank(b) - rank(a))) {
      const need = [];
      for (let m = n; m && !keep.has(m.id); m = up[m.parent]) need.push(m);
      if (!need.length) continue;
      const foot = need[need.length - 1].parent,
        more = busy.has(foot) ? 1 : 0; /* a first child shares its parent's row */
      if (keep.size + need.length > NODES || (used + more > rows && rank(n) < 200)) continue;
      used += more;
      for (const m of need) {
        keep.add(m.id);
        busy.add(m.parent);
      }
    }
    return all.filter((n) => keep.has(n.id));
  }

  function drawChain(v, W) {
    const nodes = v.round.nodes.filter((n) => !n.probe).slice(0, 24),
      after = v.phase >= 3,
      done = v.phase >= 4 && tailed(v);
    const S = svg("svg", { class: "tree", role: "group", "aria-label": "Draft of round " + (v.round.i + 1) });
    const tail = done ? tailBox(v, 0, 0, 32) : null,
      rootW = 68;
    v.long = nodes.length > 5 ? 9 : LONG;
    const widest = Math.max(64, ...nodes.map((n) => wide(SV.fold.label(v.lane, n.tok, v.long)) + 18));
    const fit = (W - rootW - 24 - (tail && v.round.why === "bonus" ? tail.w + 28 : 0)) / nodes.length;
    const w = Math.max(widest, Math.min(132, fit - 22)),
      gap = Math.max(12, Math.min(36, fit - w)),
      y = 34,
      q = (n) => (n.q === null ? "" : "q " + f2(n.q));
    /* The place is said in full where it fits beside its q over every box, else by its number alone. */
    const place = nodes.every((n, i) => said("position " + (i + 1)) + said(q(n)) + 8 <= w) ? "position " : "";
    const edges = svg("g"),
      boxes = svg("g");
    boxes.append(...root(v, rootW - 22, y + 16));
    nodes.forEach((n, i) => {
      const x = rootW + i * (w + gap),
        cls = SV.fold.verdictOf(v.round, n.id, v.phase);
      edges.append(
        svg("path", {
          class: "edge " + cls,
          d: `M${i ? x - gap : rootW - 18} ${y + 16}H${x}`,
          "stroke-width": cls === "acc" ? 3.5 : 1.5,
        }),
      );
      boxes.append(
        text(x, y - 10, place + (i + 1), "hd"),
        n.q === null ? "" : text(x + w, y - 10, q(n), "hd", "end"),
        nodeBox(v, n, x, y, w, 32, null),
        test(v, n, x, y + 44, w, gap, after),
      );
    });
    let right = rootW + nodes.length * (w + gap);
    if (tail) {
      const path = v.round.path.length;
      if (v.round.why === "correction") {
        const bx = rootW + Math.max(0, path) * (w + gap),
          ty = y + 166;
        edges.append(
          svg("path", {
            class: "edge cor",
            d: `M${bx - Math.min(9, gap / 2)} ${y + 16}V${ty + 12}H${bx}`,
            "stroke-width": 1.5,
          }),
        );
        const t = tailBox(v, bx, ty, 24);
        boxes.append(t.g, text(bx + t.w + 8, ty + 16, "correction", "hd"));
        right = Math.max(right, bx + t.w + 80);
      } else {
        edges.append(
          svg("path", { class: "edge " + tail.cls, d: `M${right - gap} ${y + 16}H${right}`, "stroke-width": 2 }),
        );
        const word = TAILS[v.round.why] || v.round.why;
        boxes.append(tailBox(v, right, y, 32).g, text(right, y - 10, word, "hd"));
        right += Math.max(tail.w, said(word)) + 8;
      }
    }
    size(S, Math.max(W, right), 240);
    S.append(edges, boxes);
    return S;
  }

  /* Under a chain's box: the draw u on a small ruler against a, and what the target would rather have said. */
  function test(v, n, x, y, w, gap, after) {
    const g = svg("g"),
      j = v.round.judges.get(n.id);
    if (!after) return g;
    const cls = SV.fold.verdictOf(v.round, n.id, 4);
    if (!j || cls === "ski") {
      g.append(text(x, y + 22, "not examined", "hd"));
      return g;
    }
    const a = Math.min(1, Math.max(0, j.a ?? 0));
    if (j.a != null)
      g.append(
        svg("rect", { class: "mini", x, y, width: w, height: 5, rx: 1 }),
        svg("rect", { class: cls === "acc" ? "miniacc" : "minirej", x, y, width: w * a, height: 5, rx: 1 }),
      );
    if (j.u != null)
      g.append(
        svg("rect", { class: "needle", x: x + w * Math.min(1, j.u) - 1, y: y - 4, width: 2, height: 13 }),
        text(x, y + 22, against(j, cls, w + gap - 6), "hd"),
      );
    g.append(text(x, y + 36, WORD[cls], "hd on"));
    const top = (Array.isArray(j.top_p) ? j.top_p : []).slice(0, 3);
    if (top.length) g.append(text(x, y + 58, "target p", "hd"));
    top.forEach(([tok, p], i) => {
      const yy = y + 74 + i * 17,
        name = clip(SV.fold.label(v.lane, tok), w - 30, SMALL);
      g.append(
        text(x, yy, name, "alt"),
        text(x + w, yy, f2(p), "q", "end"),
        svg("rect", { class: "bar", x, y: yy + 3, width: Math.max(1, w * 0.75 * p), height: 1.5 }),
      );
    });
    return g;
  }

  /* Two digits where three would reach the next box; the card below has all of them. */
  function against(j, cls, room) {
    const say = (f) => f(j.u) + (cls === "acc" ? " < " : " \u2265 ") + f(j.a);
    return said(say(f3)) <= room ? say(f3) : say(f2);
  }

  function place(v, nodes, H) {
    const under = new Map();
    for (const n of nodes) {
      if (!under.has(n.parent)) under.set(n.parent, []);
      under.get(n.parent).push(n);
    }
    const kids = (id) => under.get(id) || [];
    const end = tailed(v) ? (v.round.path.length ? v.round.path[v.round.path.length - 1] : -1) : null;
    const row = new Map();
    let next = 0,
      tailRow = null;
    const walk = (n) => {
      const c = kids(n.id);
      c.forEach(walk);
      if (n.id === end && c.length) tailRow = next++;
      row.set(
        n.id,
        c.length ? (row.get(c[0].id) + (n.id === end ? tailRow : row.get(c[c.length - 1].id))) / 2 : next++,
      );
    };
    kids(-1).forEach(walk);
    if (end === -1) tailRow = next++;
    const top = 26,
      pitch = Math.max(17, Math.min(34, (H - top - 8) / Math.max(next, 1))),
      h = Math.min(22, pitch - 3);
    const used = pitch * next,
      y0 = top + Math.max(0, (H - top - 8 - used) / 2);
    const roots = kids(-1).map((n) => row.get(n.id));
    return {
      row,
      tailRow,
      pitch,
      h,
      end,
      Y: (r) => y0 + r * pitch + (pitch - h) / 2,
      rootRow: roots.length ? (roots[0] + roots[roots.length - 1]) / 2 : 0,
      height: Math.max(H, top + used + 12),
    };
  }

  const FOOT = 18;
  function leftOut(v, nodes) {
    const probes = v.round.nodes.filter((n) => n.probe).length,
      more = v.round.nodes.length - probes - nodes.length;
    return [
      more ? "+ " + count(more, "node") + " not drawn" : "",
      probes ? "+ " + count(probes, "probe") + ", scored for later rounds" : "",
    ]
      .filter(Boolean)
      .join(", ");
  }

  function drawTree(v, W, H) {
    const nodes = v.every
      ? v.round.nodes.filter((n) => !n.probe).slice(0, EVERY)
      : chosen(v, Math.floor((H - 40 - FOOT) / 19));
    const also = leftOut(v, nodes),
      L = place(v, nodes, H - (also ? FOOT : 0)),
      done = v.phase >= 4 && tailed(v);
    const S = svg("svg", { class: "tree", role: "group", "aria-label": "Draft tree of round " + (v.round.i + 1) });
    const D = Math.max(...nodes.map((n) => n.depth)),
      widths = [],
      rootW = 58,
      last = L.end >= 0 ? v.round.nodes[L.end] : null,
      at = last ? last.depth : 0,
      deep = done && at === D;
    for (v.long of [14, 11, 8, 6, 4]) {
      /* shorter labels before a sideways scroll */
      for (let d = 1; d <= D; d++)
        widths[d] = Math.max(
          28,
          ...nodes
            .filter((n) => n.depth === d)
            .map((n) => wide(SV.fold.label(v.lane, n.tok, v.long)) + (n.q === null ? 16 : 42)),
        );
      if (v.every || widths.slice(1).reduce((a, b) => a + b, 0) + (deep ? 180 : 84) + 14 * D <= W) break;
    }
    const tail = done ? tailBox(v, 0, 0, L.h) : null;
    const need = rootW + widths.slice(1).reduce((a, b) => a + b, 0) + (at === D ? 150 : 60);
    const drawn = new Set(nodes.map((n) => n.id)),
      hidden = (n) => n.kids.filter((id) => !drawn.has(id) && !v.round.nodes[id].probe).length;
    const gap = Math.max(14, 8 + said("+" + Math.max(0, ...nodes.map(hidden))), Math.min(46, (W - need) / (D + 1))),
      X = [rootW - 10];
    for (let d = 1, x = rootW + gap - 10; d <= D + 1; d++) {
      X[d] = x;
      x += (widths[d] || 0) + gap;
    }
    const edges = svg("g"),
      boxes = svg("g"),
      yr = L.Y(L.rootRow) + L.h / 2;
    const curve = (x1, y1, x2, y2, cls, sw) =>
      edges.append(
        svg("path", {
          class: "edge " + cls,
          d: `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`,
          "stroke-width": sw,
        }),
      );
    boxes.append(...root(v, rootW - 14, yr));
    const full = widths.slice(1).every((w) => said("depth " + D) + 6 <= w + gap);
    for (let d = 1; d <= D; d++) boxes.append(text(X[d], 14, (full ? "depth " : "") + d, "hd"));
    if (!full) boxes.append(text(4, 14, "depth", "hd"));
    const order = { ski: 0, dra: 0, rej: 1, acc: 2 },
      cls = (n) => SV.fold.verdictOf(v.round, n.id, v.phase);
    for (const n of [...nodes].sort((a, b) => order[cls(a)] - order[cls(b)])) {
      const up = n.parent >= 0 ? v.round.nodes[n.parent] : null,
        y2 = L.Y(L.row.get(n.id)) + L.h / 2;
      curve(
        up ? X[up.depth] + widths[up.depth] : X[0],
        up ? L.Y(L.row.get(up.id)) + L.h / 2 : yr,
        X[n.depth],
        y2,
        cls(n),
        cls(n) === "acc" ? 3.5 : 1 + (n.q || 0) * 1.5,
      );
      boxes.append(nodeBox(v, n, X[n.depth], y2 - L.h / 2, widths[n.depth], L.h, n.q));
      if (hidden(n)) boxes.append(text(X[n.depth] + widths[n.depth] + 3, y2 + 3.5, "+" + hidden(n), "q more"));
    }
    let right = Math.max(
      ...nodes.map((n) => X[n.depth] + widths[n.depth] + (hidden(n) ? 8 + said("+" + hidden(n)) : 12)),
    );
    if (tail) {
      const x1 = last ? X[at] + widths[at] : X[0],
        y1 = last ? L.Y(L.row.get(last.id)) + L.h / 2 : yr,
        ty = L.tailRow === null ? y1 - L.h / 2 : L.Y(L.tailRow);
      curve(x1, y1, X[at + 1], ty + L.h / 2, tail.cls, 2);
      boxes.append(
        tailBox(v, X[at + 1], ty, L.h).g,
        text(X[at + 1] + tail.w + 6, ty + L.h / 2 + 4, TAILS[v.round.why] || v.round.why, "hd"),
      );
      right = Math.max(right, X[at + 1] + tail.w + 80);
    }
    const height = L.height + (also ? FOOT : 0);
    if (also) boxes.append(text(4, height - 6, also, "hd"));
    size(S, Math.max(v.every ? 0 : W, right, also ? 8 + said(also) : 0), height);
    S.drawn = nodes.length;
    S.append(edges, boxes);
    return S;
  }
  const size = (s, w, h) => {
    s.setAttribute("width", Math.ceil(w));
    s.setAttribute("height", Math.ceil(h));
    s.setAttribute("viewBox", `0 0 ${Math.ceil(w)} ${Math.ceil(h)}`);
  };

  /* On a phone: an indented list of what was examined. */
  function drawList(v) {
    const r = v.round,
      tree = r.kind === "tree",
      list = el("div", { class: "tlist" });
    const item = (id, label, cls, depth, q, say) =>
      el(
        "button",
        {
          class: v.sel === id ? "sel" : null,
          "data-node": id,
          css: { "padding-left": 8 + (tree ? (depth - 1) * 14 : 0) + "px" },
        },
        el("bdi", { class: "t " + cls, "data-v": SV.stage.SAYS[cls] }, label),
        el("span", { class: "q" }, q === null ? "" : "q " + f2(q)),
        el("span", { class: "v" }, say),
      );
    let hidden = 0;
    for (const n of r.nodes) {
      if (n.probe) continue;
      const cls = SV.fold.verdictOf(r, n.id, v.phase);
      if (tree && cls === "ski" && n.id !== v.sel) {
        hidden++;
        continue;
      }
      if (list.childElementCount < 40)
        list.append(item(n.id, SV.fold.label(v.lane, n.tok, 16), cls, n.depth, n.q, WORD[cls]));
      else hidden++;
    }
    if (v.phase >= 4 && tailed(v))
      list.append(
        item(
          "tail",
          SV.fold.label(v.lane, r.commit.tail.tok, 16),
          tailClass(r.why),
          r.path.length + 1,
          null,
          TAILS[r.why] || r.why,
        ),
      );
    if (hidden) list.append(el("p", null, "And " + hidden + " more drafted, never examined."));
    return list;
  }

  SV.tree = { drawChain, drawTree, drawList, tailClass, WORD, TAILS };
})();
