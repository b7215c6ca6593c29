/* The draft of one round as a chain: its tokens in a row, the tests under them, and what the target added. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { svg, f2, f3 } = SV.dom;
  const { SMALL, LONG, WORD, TAILS, wide, labelWidth, clip, text, nodeBox, drawsTail, tailBox, root, size } = SV.nodes;

  function drawChain(v, W) {
    const nodes = v.round.nodes.filter((n) => !n.probe).slice(0, 24),
      after = v.phase >= 3,
      done = v.phase >= 4 && drawsTail(v);
    const S = svg("svg", { class: "tree", role: "group", "aria-label": "Draft of round " + (v.round.i + 1) });
    const tail = done ? tailBox(v, 0, 0, 32) : null,
      rootW = 68;
    v.long = nodes.length > 5 ? 9 : LONG;
    const widest = Math.max(64, ...nodes.map((n) => wide(SV.fold.label(v.lane, n.tok, v.long)) + 18));
    const fit = (W - rootW - 24 - (tail && v.round.why === "bonus" ? tail.w + 28 : 0)) / nodes.length;
    const w = Math.max(widest, Math.min(132, fit - 22)),
      gap = Math.max(12, Math.min(36, fit - w)),
      y = 28,
      cold = !(SV.why.temperature(v.lane) > 0) /* q is one-hot there and says nothing */,
      q = (n) => (cold || n.q === null ? "" : "q " + f2(n.q));
    /* The position is written in full where it fits next to its q over every box, else only its number. */
    const place = nodes.every((n, i) => labelWidth("position " + (i + 1)) + labelWidth(q(n)) + 8 <= w)
      ? "position "
      : "";
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
          ty = y + (cold ? 147 : 158);
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
        right += Math.max(tail.w, labelWidth(word)) + 8;
      }
    }
    size(S, Math.max(W, right), cold ? 202 : 212);
    S.append(edges, boxes);
    return S;
  }

  /* Under a chain's box: the draw u on a small ruler against a, and what the target prefers. */
  function test(v, n, x, y, w, gap, after) {
    const g = svg("g"),
      j = v.round.judges.get(n.id);
    if (!after) return g;
    const cls = SV.fold.verdictOf(v.round, n.id, 4);
    if (!j || cls === "ski") {
      g.append(text(x, y + 22, "not examined", "hd"));
      return g;
    }
    const a = Math.min(1, Math.max(0, j.a ?? 0)),
      cold = !(SV.why.temperature(v.lane) > 0),
      up = cold ? 14 : 0; /* no line for a throw that decides nothing */
    if (j.a != null)
      g.append(
        svg("rect", { class: "mini", x, y, width: w, height: 5, rx: 1 }),
        svg("rect", { class: cls === "acc" ? "miniacc" : "minirej", x, y, width: w * a, height: 5, rx: 1 }),
      );
    if (j.u != null && !cold)
      g.append(
        svg("rect", { class: "needle", x: x + w * Math.min(1, j.u) - 1, y: y - 4, width: 2, height: 13 }),
        text(x, y + 22, against(j, cls, w + gap - 6), "hd"),
      );
    g.append(text(x, y + 36 - up, WORD[cls], "hd on"));
    /* At temperature 0 every p is 0 or 1; what the target's softmax says tells more, and the sentence above says it, too. */
    const own = !cold || !Array.isArray(j.top_softmax) ? [] : j.top_softmax,
      top = (own.length ? own : Array.isArray(j.top_p) ? j.top_p : []).slice(0, 3);
    if (top.length) g.append(text(x, y + 58 - up, own.length ? "softmax" : "target p", "hd"));
    top.forEach(([tok, p], i) => {
      const yy = y + 74 - up + i * 17,
        name = clip(SV.fold.label(v.lane, tok), w - 30, SMALL);
      g.append(
        text(x, yy, name, "alt"),
        text(x + w, yy, f2(p), "q", "end"),
        svg("rect", { class: "bar", x, y: yy + 3, width: Math.max(1, w * 0.75 * p), height: 1.5 }),
      );
    });
    return g;
  }

  /* Two digits where three would reach the next box, or where words would stand for a number; the card below has all of them. */
  function against(j, cls, maxWidth) {
    const say = (f) => f(j.u) + (cls === "acc" ? " < " : " \u2265 ") + f(j.a);
    return labelWidth(say(f3)) <= maxWidth && !/[a-z]/.test(say(f3)) ? say(f3) : say(f2);
  }

  SV.chain = { draw: drawChain };
})();
