/* Small SVG charts in ink: lines, dots, bars. Drawn at the box's own width so that letters keep their size, and drawn again
   when it changes. Series differ by dashes and by labels at their ends. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, svg, niceStep, BIG, enlarge } = SpecViz.dom;
  const { finite, clamp } = P.kit;

  /* A box that calls `draw(width)` now and whenever its width changes; from() says in sentences where its figures come from, and
     stands under it in a file, as does the caption. */
  const named = (label) => label.toLowerCase().replace(/\W+/g, "-");
  function frame(label, draw, from, caption = "") {
    const root = el("div", { class: "pn-plot", role: "figure", "aria-label": label });
    const picture = () => {
      const drawn = SpecViz.dom.svg("g"),
        all = [...root.querySelectorAll("svg")].filter(
          (s) => !s.parentElement.closest("svg") && !s.closest(".pn-keys"),
        );
      for (const one of all) drawn.append(SpecViz.save.bare(one));
      const size = (name) => Math.max(0, ...all.map((s) => Number(s.getAttribute(name))));
      return size("width") && { title: label, caption, drawn, w: size("width"), h: size("height") };
    };
    const saves = SpecViz.save.keys(
      label,
      () => root,
      () => {
        const made = picture();
        return made && { name: named(label), from: from(), ...made };
      },
    );
    let last = 0;
    const paint = () => {
      const w = Math.round(root.clientWidth);
      if (w > 40) {
        last = w;
        const big = root.closest(".wide") ? BIG : 1;
        root.replaceChildren(...[draw(w / big)].flat());
        for (const drawn of root.querySelectorAll(":scope > svg")) enlarge(drawn, big);
        if (root.querySelector("svg, .pn-live")) root.append(saves);
      }
    };
    const seen = new ResizeObserver(() => {
      if (Math.round(root.clientWidth) !== last) paint();
    });
    seen.observe(root);
    return { root, paint, label: (s) => root.setAttribute("aria-label", s), stop: () => seen.disconnect() };
  }

  function ticks(min, max, n, log) {
    if (log) {
      const out = [];
      for (let v = 1; v <= max * 1.001; v *= 2) if (v >= min * 0.999) out.push(v);
      return out.length > n * 1.5 ? out.filter((_, i) => i % 2 === 0) : out;
    }
    const step = niceStep((max - min) / Math.max(1, n)),
      out = [];
    for (let v = Math.ceil(min / step - 1e-9) * step; v <= max + step * 1e-6; v += step)
      out.push(Number(v.toPrecision(10)));
    return out;
  }
  const text = (x, y, s, cls, anchor = "start") => svg("text", { x, y, class: cls, "text-anchor": anchor }, s);
  const tidy = (x) => (Math.abs(x) >= 1000 ? Math.round(x).toLocaleString("en") : String(Number(x.toPrecision(3))));

  /* spec: {width, height, x: {min, max, log, name, show, whole, at}, y: {min, max, name, show},
     series: [{pts: [[x, y]], cls, name, dots}], marks: [{x, y, name, cls}], rules: [{x | y, name}]} */
  function xy(spec) {
    const H = spec.height || 260,
      W = spec.width,
      B = H - 38,
      T = 14,
      ends = spec.series.filter((s) => s.name);
    const L = 46,
      R = W < 480 || !ends.length ? 14 : Math.min(W * 0.3, 22 + 6.6 * Math.max(...ends.map((s) => s.name.length)));
    const { x, y } = spec,
      lx = (v) => (x.log ? Math.log2(Math.max(v, 1e-9)) : v);
    const X = (v) => L + ((lx(v) - lx(x.min)) / Math.max(1e-9, lx(x.max) - lx(x.min))) * (W - L - R),
      Y = (v) => B - ((v - y.min) / Math.max(1e-9, y.max - y.min)) * (B - T);
    const S = svg("svg", { width: W, height: H, viewBox: `0 0 ${W} ${H}`, "aria-hidden": "true" }),
      add = (...k) => S.append(...k);
    for (const v of ticks(y.min, y.max, 5))
      add(
        svg("line", { class: v > y.min ? "grid" : "axis", x1: L, x2: W - R, y1: Y(v), y2: Y(v) }),
        text(L - 8, Y(v) + 4, (y.show || tidy)(v), "ax", "end"),
      );
    for (const v of (x.at || ticks(x.min, x.max, Math.max(3, (W - L - R) / 70), x.log)).filter(
      (t) => !x.whole || Number.isInteger(t),
    ))
      add(
        svg("line", { class: "tick", x1: X(v), x2: X(v), y1: B, y2: B + 4 }),
        text(X(v), B + 17, (x.show || tidy)(v), "ax", "middle"),
      );
    if (x.name) add(text((L + W - R) / 2, H - 4, x.name, "axname", "middle"));
    /* a line that ends just above a rule would run through its name */
    const crossed = (v) =>
      spec.series.some((s) => s.pts.length && Math.abs(Y(s.pts[s.pts.length - 1][1]) - Y(v) + 9) < 13);
    for (const r of spec.rules || []) {
      const at =
        r.x !== undefined ? { x1: X(r.x), x2: X(r.x), y1: T, y2: B } : { x1: L, x2: W - R, y1: Y(r.y), y2: Y(r.y) };
      add(
        svg("line", { class: "rule", ...at }),
        r.name
          ? text(
              r.x !== undefined ? at.x1 + 5 : crossed(r.y) ? L + 4 : W - R - 4,
              r.x !== undefined ? T - 3 : at.y1 - 5 /* above the plot, where no mark has its name */,
              r.name,
              "ax",
              r.x !== undefined || crossed(r.y) ? "start" : "end",
            )
          : "",
      );
    }
    const labels = [];
    for (const s of spec.series) {
      const pts = s.pts
        .filter((p) => finite(p[0]) && finite(p[1]))
        .map((p) => [X(p[0]), Y(clamp(p[1], y.min - (y.max - y.min), y.max * 1.02))]);
      if (!pts.length) continue;
      if (!s.bare)
        add(
          svg("path", {
            class: "ln " + (s.cls || ""),
            d: pts.map((p, i) => (i ? "L" : "M") + p[0].toFixed(1) + " " + p[1].toFixed(1)).join(""),
          }),
        );
      if (s.dots)
        for (const p of pts) add(svg("circle", { class: "pt " + (s.cls || ""), cx: p[0], cy: p[1], r: s.dots }));
      if (s.tag) add(text(pts[pts.length - 1][0] + 8, pts[pts.length - 1][1] + 10, s.tag, "ax"));
      if (s.name) labels.push({ x: pts[pts.length - 1][0], y: Math.max(T, pts[pts.length - 1][1]), s });
    }
    for (const m of spec.marks || []) {
      const mx = X(m.x),
        my = Y(clamp(m.y, y.min, y.max)),
        left = mx > W * 0.62;
      add(
        svg("circle", { class: "halo", cx: mx, cy: my, r: 9 }),
        svg("circle", { class: "mark " + (m.cls || ""), cx: mx, cy: my, r: 5 }),
      );
      if (m.name)
        add(text(mx + (left ? -12 : 12), my + (my < 34 ? 20 : -10), m.name, "nm strong", left ? "end" : "start"));
    }
    labels.sort((a, b) => a.y - b.y);
    for (let i = 1; i < labels.length; i++) labels[i].y = Math.max(labels[i].y, labels[i - 1].y + 15);
    if (R > 20) for (const l of labels) add(text(W - R + 8, Math.min(B, l.y) + 4, l.s.name, "nm"));
    else if (labels.length) return [S, legend(labels.map((l) => l.s))];
    return S;
  }
  const legend = (list) =>
    el(
      "div",
      { class: "pn-keys" },
      list.map((s) =>
        el(
          "span",
          null,
          svg(
            "svg",
            { width: 22, height: 8, "aria-hidden": "true" },
            svg("path", { class: "ln " + (s.cls || ""), d: "M0 4H22" }),
          ),
          s.name,
        ),
      ),
    );

  /* The same bars as lines, for a file. */
  function standing(list, top, p) {
    const [row, name, wide, show] = [26, 190, 420, 110],
      drawn = svg("g");
    const long = (x) => name + wide * clamp(x / top, 0, 1),
      say = (x, y, text, size, fill, family, anchor) =>
        svg("text", { x, y, fill, "font-size": size, "font-family": family, "text-anchor": anchor }, text);
    list.forEach((b, i) => {
      const y = i * row,
        word = typeof b.name === "string" ? b.name : b.name.textContent;
      drawn.append(
        say(0, y + 16, word.length > 22 ? word.slice(0, 21) + "\u2026" : word, 13, p.ink, p.mono),
        svg("rect", { x: name, y: y + 4, width: wide, height: 14, fill: p.sunken }),
        svg("rect", { x: name, y: y + 4, width: long(b.value) - name, height: 14, fill: p.draft }),
        say(name + wide + show, y + 16, b.show, 13, p.ink2, p.sans, "end"),
      );
      if (b.mark !== undefined)
        drawn.append(svg("rect", { x: long(b.mark) - 1, y: y + 1, width: 2, height: 20, fill: p.ink }));
    });
    return { drawn, w: name + wide + show, h: list.length * row };
  }

  /* Horizontal bars on one scale: [{name, value, show, cls, mark}], each a row that wraps on a phone. from: as frame has it, for
     bars that are worth a file; caption: what stands under them there. */
  function bars(list, { max, label, from, caption = "" }) {
    const top = max || Math.max(1e-9, ...list.map((b) => Math.max(b.value, b.mark || 0)));
    const made = () => ({
      ...{ name: named(label), title: label, caption, from: from() },
      ...standing(list, top, SpecViz.dom.palette(root)),
    });
    const root = el(
      "div",
      { class: "pn-bars", role: "list", "aria-label": label },
      list.map((b) =>
        el(
          "div",
          { class: "pn-bar", role: "listitem" },
          el("span", { class: "n" }, b.name),
          el(
            "span",
            { class: "t", "aria-hidden": "true" },
            el("i", { class: b.cls || "", css: { width: (100 * clamp(b.value / top, 0, 1)).toFixed(2) + "%" } }),
            b.mark !== undefined
              ? el("u", { css: { left: (100 * clamp(b.mark / top, 0, 1)).toFixed(2) + "%" } })
              : null,
          ),
          el("span", { class: "v" }, b.show),
        ),
      ),
    );
    return from
      ? el(
          "div",
          null,
          root,
          SpecViz.save.keys(label, () => root, made),
        )
      : root;
  }

  /* Bars and points with Plotly where the page has it (the sweep's figure): data and layout in the page's own colours. */
  function plotly(box, series, { xname, yname, y2name, width }) {
    const p = SpecViz.dom.palette(box),
      big = box.closest(".wide") ? BIG : 1,
      ax = {
        gridcolor: p.line,
        linecolor: p.line2,
        zeroline: false,
        tickfont: { size: 11 * big, color: p.ink3 },
        titlefont: { size: 11 * big, color: p.ink2 },
      };
    const dash = ["solid", "dash", "dot"];
    const data = series.map((s, i) => ({
      type: "scatter",
      mode: "lines+markers",
      name: s.name,
      x: s.x,
      y: s.y,
      yaxis: s.second ? "y2" : "y",
      line: { color: i ? p.ink3 : p.ink, width: 2, dash: dash[i % 3] },
      marker: { size: 7, color: i ? p.ink3 : p.ink, symbol: ["circle", "square-open", "x-thin-open"][i % 3] },
      hovertemplate: "%{y:.2f} at %{x}<extra></extra>",
    }));
    const layout = {
      width: width * big,
      height: 300 * big,
      margin: { l: 52 * big, r: 52 * big, t: 12 * big, b: 44 * big },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: p.sans, color: p.ink2, size: 12 * big },
      showlegend: true,
      legend: { orientation: "h", y: 1.14, x: 0 },
      xaxis: {
        ...ax,
        title: { text: xname, font: { size: 12 * big } },
        showgrid: false,
        type: series[0].x.every((v) => typeof v === "number") ? "linear" : "category",
      },
      yaxis: { ...ax, title: { text: yname, font: { size: 12 * big } }, rangemode: "tozero" },
      yaxis2: {
        ...ax,
        tickmode: "auto",
        overlaying: "y",
        side: "right",
        showgrid: false,
        title: { text: y2name, font: { size: 12 * big } },
        rangemode: "tozero",
      },
    };
    return globalThis.Plotly.react(box, data, layout, { displayModeBar: false, responsive: false });
  }

  P.plot = { frame, xy, legend, bars, plotly, ticks, tidy };
})();
