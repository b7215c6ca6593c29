/* The time ribbon: prefill, draft, verify and overhead of every round, all lanes on one engine clock, on one canvas. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, sheet, niceStep, who } = SV.dom;
  const ROW = 44,
    BAR = 16;

  const endOfLane = (lane) =>
    (lane.committed ? SV.fold.endOf(lane, lane.committed - 1) : lane.prefill ? lane.prefill.t1 : 0) || 0;
  function axis(end, w) {
    const step = niceStep(end / (w > 480 ? 6 : 3)),
      out = [];
    for (let t = 0; t <= end * 1.0001; t += step) out.push(t);
    const ms = end < 2;
    return {
      ticks: out,
      text: (t, lastOne) =>
        t === 0 ? "0" : String(+(ms ? t * 1e3 : t).toPrecision(4)) + (lastOne ? (ms ? " ms" : " s") : ""),
    };
  }

  class Ribbon {
    constructor(board) {
      this.board = board;
      this.canvas = el("canvas", {
        class: "ribbon",
        role: "img",
        "aria-label": "Engine time of every round: prefill, draft, verify, overhead",
      });
      this.back = document.createElement("canvas");
      this.empty = el("p", { class: "empty quiet" }, SV.messages.say("chart.empty"));
      this.body = el("div", { class: "pbody" }, this.canvas, this.empty);
      const key = (cls, t) => el("span", null, el("i", { class: cls }), t);
      this.root = el(
        "section",
        { class: "panel p-time", "aria-label": "Time" },
        el(
          "div",
          { class: "phead" },
          el("h2", null, "Time"),
          (this.tools = el("span", { class: "end" })),
          el(
            "div",
            { class: "keyrow end" },
            key("kp", SV.messages.say("ribbon.prefill")),
            key("kd", SV.messages.say("ribbon.draft")),
            key("kv", SV.messages.say("ribbon.verify")),
            key("ko", "overhead"),
          ),
        ),
        this.body,
      );
      this.last = 0;
      this.timer = null;
      this.canvas.addEventListener("click", (e) => board.seekTime((e.offsetX / this.w) * this.end));
    }

    /* v: {lanes: [lane], now, end, focus: lane|null, round, theme, width} */
    paint(v) {
      const big = this.board.big,
        w = v.width / big,
        h = v.lanes.length * ROW + 24;
      this.w = v.width;
      this.end = Math.max(v.end, 1e-6);
      const key = [
        w,
        h,
        v.theme,
        this.end,
        ...v.lanes.map((l) => who(l) + ":" + l.committed + ":" + Boolean(l.prefill) + SV.stage.titleOf(l)),
      ].join();
      const moved = [key, v.now, v.round && v.round.i, who(v.focus)].join();
      if (moved === this.moved) return;
      if (v.live && performance.now() - this.last < 240) {
        this.timer ??= setTimeout(() => {
          this.timer = null;
          this.board.soon();
        }, 240);
        return;
      } /* a growing run: four times a second */
      this.last = performance.now();
      this.moved = moved;
      this.v = v;
      this.canvas.hidden = !v.lanes.length; /* no axis where there is nothing to draw */
      this.empty.hidden = !this.canvas.hidden;
      if (this.canvas.hidden) return;
      if (key !== this.key) {
        this.key = key;
        this.bars(v, w, h, [w, h, v.theme, this.end].join());
      }
      const c = sheet(this.canvas, w, h, big),
        x = (v.now / this.end) * w,
        p = this.board.colors;
      this.grid(c, v, w, h, p);
      const all = v.lanes.every((l) => endOfLane(l) <= v.now); /* nothing is still to come: one layer is enough */
      c.globalAlpha = 0.25;
      if (!all) c.drawImage(this.back, 0, 0, w, h);
      c.globalAlpha = 1;
      c.save();
      c.beginPath();
      c.rect(0, 0, all ? w : x, h);
      c.clip();
      c.drawImage(this.back, 0, 0, w, h);
      c.restore();
      if (v.focus && v.round && v.round.commit) this.mark(c, v, w, p);
      c.fillStyle = p.ink;
      c.fillRect(Math.min(w - 1.5, Math.max(0, x - 0.75)), 2, 1.5, h - 20);
    }
    grid(c, v, w, h, p) {
      const { ticks, text } = axis(this.end, w);
      c.font = "11px " + p.sans;
      ticks.forEach((t, i) => {
        const x = (t / this.end) * w,
          label = text(t, i === ticks.length - 1);
        c.fillStyle = p.line;
        c.fillRect(Math.min(w - 1, Math.round(x)), 0, 1, h - 18);
        c.fillStyle = p.ink3;
        c.textAlign = i === 0 ? "left" : x > w - 24 ? "right" : "center";
        c.fillText(label, i === 0 ? 0 : Math.min(x, w), h - 4);
      });
      c.textAlign = "left";
      c.font = "12px " + p.sans;
      c.fillStyle = p.ink;
      v.lanes.forEach((lane, i) => c.fillText(SV.stage.titleOf(lane).slice(0, 40), 0, i * ROW + 11));
    }
    /* While the scale stands, only rounds that are new are drawn. */
    bars(v, w, h, scale) {
      const was = this.done,
        grown =
          was &&
          was.scale === scale &&
          was.lanes.length === v.lanes.length &&
          v.lanes.every((l, i) => was.lanes[i] === l && was.upto[i] <= l.committed && was.upto[i] > 0);
      this.done = { scale, lanes: v.lanes, upto: v.lanes.map((l) => l.committed) };
      this.lay(
        grown ? this.back.getContext("2d") : sheet(this.back, w, h, this.board.big),
        v,
        w,
        grown ? was.upto : null,
      );
    }
    /* Bars from the rounds `upto` on, a number a lane; all of them and the reading of the prompt where it is null. */
    lay(c, v, w, upto) {
      const p = this.board.colors,
        X = (t) => (t / this.end) * w;
      v.lanes.forEach((lane, li) => {
        const y = li * ROW + 18;
        const bar = (color, a, b, top = 0, high = BAR) => {
          if (b > a && X(a) < w) {
            c.fillStyle = color;
            c.fillRect(X(a), y + top, Math.max(0.4, Math.min(X(b), w) - X(a)), high);
          }
        };
        if (lane.prefill && !upto) {
          c.strokeStyle = p.ink3;
          c.setLineDash([2, 2]);
          c.strokeRect(
            X(lane.prefill.t0) + 0.5,
            y + 0.5,
            Math.max(1, X(lane.prefill.t1) - X(lane.prefill.t0) - 1),
            BAR - 1,
          );
          c.setLineDash([]);
        }
        for (let i = upto ? upto[li] : 0; i < lane.committed; i++) {
          const r = lane.rounds[i],
            t0 = SV.fold.startOf(lane, i),
            t3 = SV.fold.endOf(lane, i),
            ve = r.verify;
          const d1 = r.draft && r.draft.t1 != null ? r.draft.t1 : t0,
            v0 = ve ? ve.t0 : d1,
            v1 = ve ? ve.t1 : d1;
          if (SV.serverFacts.is(lane)) {
            bar(p.line2, t0, t3); /* from one message to the next: how the time was spent is not reported */
            if (X(t3) - X(t0) > 3) bar(p.surface, t3 - this.end / w, t3);
            continue;
          }
          if (i) bar(p.over, SV.fold.endOf(lane, i - 1), t0); /* the drafter learns, the policy plans */
          const both = ve && v0 < d1 && v1 > t0; /* at the same time: the draft above, the verification below */
          bar(p.over, both ? Math.max(d1, v1) : d1, t3);
          bar(p.draft, t0, d1, 0, both ? BAR / 2 : BAR);
          bar(p.verify, v0, v1, both ? BAR / 2 : 0, both ? BAR / 2 : BAR);
          const x0 = X(v0),
            x1 = X(v1);
          if (X(t3) - X(t0) > 3) {
            c.fillStyle = p.surface;
            c.fillRect(X(t3) - 1, y, 1, BAR);
          }
          if (x1 - x0 > 15 && x1 <= w && !both) {
            c.fillStyle = p.surface;
            c.font = "600 11px " + p.sans;
            c.textAlign = "center";
            c.fillText(String((r.commit && r.commit.n_new) ?? ""), (x0 + x1) / 2, y + 12);
          }
        }
      });
    }
    /* All of it as lines, for a file. */
    picture() {
      const pen = new SV.svgContext.Pen(),
        w = 900,
        h = this.v.lanes.length * ROW + 24;
      this.grid(pen, this.v, w, h, this.board.colors);
      this.lay(pen, this.v, w, null);
      return { drawn: pen.root, w, h };
    }
    mark(c, v, w, p) {
      const i = v.lanes.indexOf(v.focus);
      if (i < 0) return;
      const a = (SV.fold.startOf(v.focus, v.round.i) / this.end) * w,
        b = (SV.fold.endOf(v.focus, v.round.i) / this.end) * w;
      if (a > w) return;
      c.strokeStyle = p.ink;
      c.lineWidth = 1.5;
      c.strokeRect(Math.max(0.75, a - 0.75), i * ROW + 15.25, Math.max(3, Math.min(b, w) - a), BAR + 5.5);
      c.lineWidth = 1;
    }
  }

  SV.ribbon = { Ribbon, endOfLane, axis };
})();
