/* The few pictures that lenses are made of: bars, a line with its limit, a grid, a strip of tokens. SVG, greys and ink. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, svg } = SV.dom;
  const T = SV.lens.tools;
  const text = (x, y, s, cls, anchor) => svg("text", { x, y, class: cls, "text-anchor": anchor }, s);
  const frame = (w, h, name) =>
    svg("svg", { class: "lplot", width: w, height: h, viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": name });

  /* The top of an axis: a round number not below the greatest value; 0 where all is zero, and then the axis has no other mark. */
  function ceiling(x) {
    if (!(x > 0)) return 0;
    const step = SV.dom.niceStep(x / 4);
    return step * Math.ceil(x / step - 1e-9);
  }

  /* Upright bars over labels. opt: {name, values, labels, cls: i -> class, limit, limitName, most, height, mark: i -> bool} */
  function bars(host, opt) {
    const v = opt.values,
      n = v.length,
      h = opt.height || 132,
      top = opt.most ?? ceiling(Math.max(opt.limit || 0, ...v)),
      L = 34,
      R = opt.limitName ? 92 : 8,
      B = h - 20,
      cw = Math.max(5, Math.min(64, (opt.width - L - R) / Math.max(1, n)));
    const S = frame(Math.min(opt.width, L + n * cw + R), h, opt.name),
      Y = (y) => B - (Math.max(0, Math.min(top, y)) / (top || 1)) * (B - 16);
    S.append(
      svg("line", { class: "axis", x1: L, x2: L + n * cw, y1: B + 0.5, y2: B + 0.5 }),
      top ? text(L - 6, Y(top) + 4, T.short(top), "ax", "end") : "",
      text(L - 6, B + 4, "0", "ax", "end"),
    );
    v.forEach((y, i) => {
      const x = L + i * cw,
        w = Math.max(2, Math.min(28, cw - 3)),
        g = svg("g", { class: "bar " + (opt.cls ? opt.cls(i) : "") + (opt.mark && opt.mark(i) ? " on" : "") });
      g.append(svg("rect", { x: x + (cw - w) / 2, y: Y(y), width: w, height: Math.max(1, B - Y(y)), rx: 1 }));
      if (cw > 26) g.append(text(x + cw / 2, Y(y) - 4, T.short(y), "ax", "middle"));
      if (opt.labels && cw > 16)
        g.append(text(x + cw / 2, h - 5, String(opt.labels[i] ?? "").slice(0, Math.floor(cw / 6.4)), "lb", "middle"));
      S.append(g);
    });
    if (Number.isFinite(opt.limit))
      S.append(
        svg("line", { class: "limit", x1: L, x2: L + n * cw, y1: Y(opt.limit), y2: Y(opt.limit) }),
        text(L + n * cw + 6, Y(opt.limit) + 4, opt.limitName || "", "ax"),
      );
    host.append(el("div", { class: "lscroll" }, S));
  }

  /* A line over rounds. opt: {name, width, series: [{points: [[x, y]], cls, end}], limit, most, x: "round"} */
  function line(host, opt) {
    const h = opt.height || 132,
      L = 34,
      R = opt.right || 84,
      B = h - 20,
      w = opt.width,
      all = opt.series.flatMap((s) => s.points);
    if (!all.length) return;
    const xs = all.map((p) => p[0]),
      x0 = Math.min(...xs),
      x1 = Math.max(x0 + 1, ...xs),
      top = opt.most ?? ceiling(Math.max(0, opt.limit || 0, ...all.map((p) => p[1])));
    const X = (x) => L + ((x - x0) / (x1 - x0)) * (w - L - R),
      Y = (y) => B - (Math.max(0, Math.min(top, y)) / (top || 1)) * (B - 10),
      S = frame(w, h, opt.name);
    S.append(
      svg("line", { class: "axis", x1: L, x2: w - R, y1: B + 0.5, y2: B + 0.5 }),
      top ? text(L - 6, Y(top) + 4, T.short(top), "ax", "end") : "",
      text(L - 6, B + 4, "0", "ax", "end"),
      text(L, h - 4, "round " + (x0 + 1), "ax"),
      text(w - R, h - 4, String(x1 + 1), "ax", "end"),
    );
    if (Number.isFinite(opt.limit))
      S.append(
        svg("line", { class: "limit", x1: L, x2: w - R, y1: Y(opt.limit), y2: Y(opt.limit) }),
        text(w - R + 8, Y(opt.limit) + 4, opt.limitName || "", "ax"),
      );
    for (const s of opt.series) {
      if (!s.points.length) continue;
      if (s.dots)
        for (const [x, y, cls] of s.points)
          S.append(svg("circle", { class: "pt " + (cls || ""), cx: X(x), cy: Y(y), r: 2.5 }));
      else
        S.append(
          svg("path", {
            class: "ln " + (s.cls || ""),
            d: s.points
              .map(([x, y], i) =>
                i
                  ? s.step
                    ? "H" + X(x).toFixed(1) + "V" + Y(y).toFixed(1)
                    : "L" + X(x).toFixed(1) + " " + Y(y).toFixed(1)
                  : "M" + X(x).toFixed(1) + " " + Y(y).toFixed(1),
              )
              .join(""),
          }),
        );
      const [x, y] = s.points[s.points.length - 1];
      if (s.end)
        S.append(svg("circle", { class: "end", cx: X(x), cy: Y(y), r: 3 }), text(w - R + 8, Y(y) + 4, s.end, "lb"));
    }
    host.append(S);
  }

  const NAMED = 76; /* pixels for the words of a heatmap's rows */
  /* Rows by columns of numbers in greys. opt: {name, rows: [[number|null]], at: [row, column], rowName, colName, width};
     rowNames: a word for every row, instead of rowName and numbers */
  function heatmap(host, opt) {
    const rows = opt.rows.slice(0, 64).map((r) => r.slice(0, 128)),
      n = rows.length,
      m = Math.max(0, ...rows.map((r) => r.length)),
      flat = rows.flat().filter((x) => x !== null);
    if (!n || !m) return;
    const lo = Math.min(...flat),
      hi = Math.max(lo + 1e-9, ...flat),
      L = opt.rowNames ? NAMED : 46,
      c = Math.max(4, Math.min(22, (opt.width - L - 8) / m)),
      r = opt.rowNames ? 14 : Math.max(8, Math.min(20, c)),
      S = frame(L + m * c + 8, n * r + 40, opt.name);
    rows.forEach((row, i) =>
      row.forEach((x, j) => {
        if (x !== null)
          S.append(
            svg("rect", {
              class: "cell",
              x: L + j * c,
              y: 18 + i * r,
              width: c - (c > 6 ? 1 : 0),
              height: r - 1,
              css: { opacity: String(0.08 + 0.92 * ((x - lo) / (hi - lo))) },
            }),
          );
      }),
    );
    if (opt.at)
      S.append(
        svg("rect", { class: "here", x: L + opt.at[1] * c - 1, y: 17 + opt.at[0] * r, width: c + 1, height: r + 1 }),
      );
    S.append(
      text(L, 11, opt.colName || "", "ax"),
      ...(opt.rowNames
        ? opt.rowNames.slice(0, n).map((name, i) => text(L - 6, 18 + (i + 1) * r - 3, name, "ax", "end"))
        : [
            text(L - 6, 18 + r - 3, opt.rowName ? opt.rowName + " 1" : "", "ax", "end"),
            text(L - 6, 18 + n * r - 3, n > 1 ? String(n) : "", "ax", "end"),
          ]),
      text(L, n * r + 32, "1", "ax"),
      text(L + m * c, n * r + 32, String(m), "ax", "end"),
    );
    host.append(el("div", { class: "lscroll" }, S));
  }

  /* Tokens side by side; items: {text, cls, node, note} */
  function strip(host, items, name) {
    host.append(
      el(
        "div",
        { class: "lstrip", role: "group", "aria-label": name },
        items
          .slice(0, 96)
          .map((t) =>
            el(
              "span",
              { class: "lcell" },
              el("bdi", { class: "ltok " + (t.cls || ""), "data-node": t.node ?? null }, t.text),
              t.note === undefined ? "" : el("em", null, t.note),
            ),
          ),
      ),
    );
  }

  SV.pictures = { NAMED, ...T, bars, line, heatmap, strip, frame, label: text };
})();
