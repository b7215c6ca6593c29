/* The draft tree of one round, as SVG: a chain lies in a row with its tests under it, a tree grows to the right.
   At most NODES nodes are drawn; the accepted path and everything that was tested are never left out. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, svg, f2, count } = SV.dom;
  const { WORD, TAILS, tailClass, wide, labelWidth, text, nodeBox, drawsTail, tailBox, root, size } = SV.nodes;
  const NODES = 56;
  const EVERY = 256;

  /* Which nodes to draw when there are too many rows: path and tests always, then the most probable, with their parents. */
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

  function place(v, nodes, H) {
    const under = new Map();
    for (const n of nodes) {
      if (!under.has(n.parent)) under.set(n.parent, []);
      under.get(n.parent).push(n);
    }
    const kids = (id) => under.get(id) || [];
    const end = drawsTail(v) ? (v.round.path.length ? v.round.path[v.round.path.length - 1] : -1) : null;
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
      done = v.phase >= 4 && drawsTail(v);
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
    const gap = Math.max(
        14,
        8 + labelWidth("+" + Math.max(0, ...nodes.map(hidden))),
        Math.min(46, (W - need) / (D + 1)),
      ),
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
    const full = widths.slice(1).every((w) => labelWidth("depth " + D) + 6 <= w + gap);
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
      ...nodes.map((n) => X[n.depth] + widths[n.depth] + (hidden(n) ? 8 + labelWidth("+" + hidden(n)) : 12)),
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
    size(S, Math.max(v.every ? 0 : W, right, also ? 8 + labelWidth(also) : 0), height);
    S.drawn = nodes.length;
    S.append(edges, boxes);
    return S;
  }
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
        el("bdi", { class: "t " + cls, "data-v": SV.tokens.VERDICT_NAMES[cls] }, label),
        el("span", { class: "q" }, q === null || !(SV.why.temperature(v.lane) > 0) ? "" : "q " + f2(q)),
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
    if (v.phase >= 4 && drawsTail(v))
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

  SV.tree = { drawChain: SV.chain.draw, drawTree, drawList };
})();
