/* Throughput: tokens per second since the prefill, on the engine's clock. One Plotly chart where the page has Plotly
   (updated in place at most four times a second, zoom kept), else a small SVG. Lanes are greys and dashes. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, svg, setText, niceStep, who } = SV.dom;
  const POINTS = 120,
    EVERY = 240,
    PART = 4 /* of what painting may take, the chart has so small a part */,
    H = 176,
    NOTE = "tokens per second since the prompt was read, on the engine's clock";
  const DASH = ["solid", "dash", "dot", "dashdot"];

  /* The curve of one lane up to k rounds, thinned evenly; the last point is always there. */
  function curve(lane, k) {
    const out = [],
      step = Math.max(1, Math.ceil(k / POINTS)),
      from = lane.prefill ? lane.prefill.t1 : 0,
      first =
        SV.serverFacts.is(lane) && k
          ? lane.rounds[0].commit.n_new
          : 0; /* what the clock begins with was not waited for */
    for (let i = k - 1; i >= 1; i -= step) {
      const s = lane.rounds[i].sum;
      if (s && s.t > from) out.push([s.t, (s.tokens - first) / (s.t - from)]);
    }
    return out.reverse();
  }

  class Chart {
    constructor(board) {
      this.board = board;
      this.box = el("div", { class: "chart", role: "img", "aria-label": "Tokens per second over engine time" });
      this.body = el("div", { class: "pbody" }, this.box);
      this.root = el(
        "section",
        { class: "panel p-rate", "aria-label": "Throughput" },
        (this.head = el(
          "div",
          { class: "phead" },
          el("h2", null, "Throughput"),
          (this.note = el("span", { class: "small quiet end" })),
        )),
        this.body,
      );
      this.last = 0;
      this.every = EVERY;
    }

    /* v: {lanes: [{lane, k}], runs, end, theme, width, fresh, live}; while a run is in flight, a chart that is slow to draw
       is drawn less often. */
    paint(v) {
      const w = v.width,
        busy = SV.timing.busy(v.lanes.map((l) => l.lane));
      const key = [
        w,
        v.theme,
        v.end,
        v.runs,
        busy,
        ...v.lanes.map(({ lane, k }) => who(lane) + ":" + k + ":" + SV.stage.titleOf(lane)),
      ].join();
      if (key === this.key) return;
      const wait = (v.live ? this.every : EVERY) - (performance.now() - this.last);
      if (wait > 0 && !v.fresh) {
        if (!this.timer)
          this.timer = setTimeout(() => {
            this.timer = null;
            this.board.soon();
          }, wait);
        return;
      }
      this.key = key;
      this.last = performance.now();
      this.v = v;
      setText(
        this.note,
        NOTE + (v.runs > 1 ? "; of " + v.runs + " runs the first" : "") + (busy ? "; machine busy" : ""),
      );
      const big = this.board.big,
        { series, top } = seriesOf(v);
      if (!series.some((s) => s.pts.length)) this.nothing();
      else if (globalThis.Plotly && this.board.options.plotly !== false) this.plotly(series, v, w, top, big);
      else this.box.replaceChildren(SV.dom.enlarge(this.svg(series, v, w / big, top), big));
      this.every = Math.max(EVERY, SV.paintRate.share((performance.now() - this.last) * PART));
    }

    /* The chart by itself, w wide, or null: lines of the small SVG, also where Plotly draws on the page. */
    picture(w) {
      if (!this.v) return null;
      const { series, top } = seriesOf(this.v);
      return series.some((s) => s.pts.length) ? this.svg(series, this.v, w, top) : null;
    }
    /* No axes where there is nothing to draw. */
    nothing() {
      if (this.drawn && globalThis.Plotly) globalThis.Plotly.purge(this.box);
      this.drawn = false;
      this.box.replaceChildren(el("p", { class: "empty quiet" }, SV.messages.say("chart.empty")));
    }
    svg(series, v, w, top) {
      const right = margin(series, w),
        L = 30,
        B = H - 20,
        step = niceStep((top * 1.08) / 4),
        max = step * Math.ceil((top * 1.04) / step);
      const X = (t) => L + (t / v.end) * (w - L - right),
        Y = (y) => B - (y / max) * (B - 8);
      const S = svg("svg", { width: w, height: H, viewBox: `0 0 ${w} ${H}` }),
        add = (...kids) => S.append(...kids);
      for (let y = 0; y <= max * 1.001; y += step)
        add(
          svg("line", { class: y ? "grid1" : "axis", x1: L, x2: w - right, y1: Y(y), y2: Y(y) }),
          svg("text", { class: "ax", x: L - 6, y: Y(y) + 4, "text-anchor": "end" }, String(+y.toPrecision(3))),
        );
      const ax = SV.ribbon.axis(v.end, w - L - right - 60);
      ax.ticks.forEach((t, i) =>
        add(
          svg(
            "text",
            { class: "ax", x: X(t), y: H - 4, "text-anchor": i ? "middle" : "start" },
            ax.text(t, i === ax.ticks.length - 1),
          ),
        ),
      );
      const ends = [];
      for (const s of series) {
        if (!s.pts.length) continue;
        add(
          svg("path", {
            class: "ln " + (s.base ? "base" : "l" + (s.dash % 4)),
            d: s.pts.map(([t, y], i) => (i ? "L" : "M") + X(t).toFixed(1) + " " + Y(y).toFixed(1)).join(""),
          }),
        );
        const [t, y] = s.pts[s.pts.length - 1];
        add(svg("circle", { class: "dot", cx: X(t), cy: Y(y), r: 2.5 }));
        ends.push({ y: Y(y), text: shorten(s.name, Math.floor((right - 34) / 6.4)) + s.rate(y) });
      }
      spread(ends, B).forEach((l) => add(svg("text", { class: "nm", x: w - right + 10, y: l.y + 4 }, l.text)));
      return S;
    }

    plotly(series, v, w, top, big) {
      const p = this.board.colors,
        ms = v.end < 2 ? 1e3 : 1;
      const color = (s) => (s.base ? p.ink3 : s.dash < 2 ? p.ink : p.ink2);
      const data = series.map((s) => ({
        type: "scatter",
        mode: "lines",
        name: s.name,
        x: s.pts.map((q) => q[0] * ms),
        y: s.pts.map((q) => q[1]),
        line: { color: color(s), width: s.base ? 1.5 : 2, dash: s.base ? "solid" : DASH[s.dash % 4] },
        hovertemplate:
          (s.rate(0) ? "%{y:.1f} tok/s" : s.name) + " at %{x:.3~f}" + (ms > 1 ? " ms" : " s") + "<extra></extra>",
      }));
      const right = margin(series, w / big) * big,
        max = top * 1.12,
        ends = [];
      for (const s of series)
        if (s.pts.length) {
          const y = s.pts[s.pts.length - 1][1];
          ends.push({
            y: (1 - y / max) * (H - 32),
            text: shorten(s.name, Math.floor((right / big - 34) / 6.4)) + s.rate(y),
          });
        }
      const notes = spread(ends, H - 32).map((l) => ({
        xref: "paper",
        x: 1,
        xanchor: "left",
        xshift: 8,
        yref: "paper",
        y: 1 - l.y / (H - 32),
        yanchor: "middle",
        showarrow: false,
        text: plain(l.text),
        font: { size: 12 * big, color: p.ink },
      }));
      const ax = {
        gridcolor: p.line,
        linecolor: p.line2,
        zeroline: false,
        tickfont: { size: 11 * big, color: p.ink3 },
        fixedrange: false,
      };
      const layout = {
        height: H * big,
        width: w,
        margin: { l: 34 * big, r: right, t: 8 * big, b: 24 * big },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: p.sans },
        showlegend: false,
        uirevision: "throughput",
        hovermode: "closest",
        annotations: notes,
        xaxis: {
          ...ax,
          showgrid: false,
          range: [0, v.end * ms],
          ticksuffix: ms > 1 ? " ms" : " s",
          showticksuffix: "last",
          nticks: 6,
        },
        yaxis: { ...ax, range: [0, max], nticks: 5 },
      };
      if (!this.drawn) this.box.replaceChildren();
      this.drawn = true;
      globalThis.Plotly.react(this.box, data, layout, {
        displayModeBar: false,
        responsive: false,
        doubleClick: "reset",
      });
    }

    stop() {
      clearTimeout(this.timer);
      if (this.drawn && globalThis.Plotly) globalThis.Plotly.purge(this.box);
    }
  }

  function seriesOf(v) {
    let g = 0;
    const rate = (y) => " " + y.toFixed(0);
    const series = v.lanes.map(({ lane, k }) => ({
      name: SV.stage.titleOf(lane),
      base: SV.metrics.isBaseline(lane),
      rate,
      dash: SV.metrics.isBaseline(lane) ? -1 : g++,
      pts: curve(lane, k).filter(([t]) => !(v.end > 0) || t <= v.end * 1.001),
    }));
    return { series, top: Math.max(10, ...series.flatMap((s) => s.pts.map((p) => p[1]))) };
  }

  /* Plotly reads a little markup in labels; a method's title is text. */
  const plain = (s) => s.replace(/[<>&]/g, (c) => ({ "<": "\u2039", ">": "\u203a", "&": "+" })[c]);
  const margin = (series, w) => Math.min(w * 0.4, 40 + 6.9 * Math.max(8, ...series.map((s) => s.name.length)));
  const shorten = (s, n) => (s.length > n ? s.slice(0, Math.max(3, n - 1)) + "\u2026" : s);
  function spread(ends, bottom) {
    ends.sort((a, b) => a.y - b.y);
    for (let i = 1; i < ends.length; i++) ends[i].y = Math.max(ends[i].y, ends[i - 1].y + 15);
    for (let i = ends.length - 1, lim = bottom; i >= 0; i--) {
      ends[i].y = Math.min(ends[i].y, lim);
      lim = ends[i].y - 15;
    }
    return ends;
  }

  SV.chart = { Chart, curve };
})();
