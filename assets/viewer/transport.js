/* Transport: play, step, speed, and the scrubber: in Watch the open lane's strip of passes (passes.js), in a race one thin line a
   lane on the shared clock. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, svg, setText, setAttr, sheet, span, who } = SV.dom;
  const SPEEDS = [
    [0.25, "\u00bc"],
    [1, "1"],
    [4, "4"],
    [0, "true time"],
  ];
  const ICONS = {
    first: "M3 3h2v10H3zM14 3v10L6.5 8z",
    back: "M12 3v10L4.5 8z",
    play: "M5 3v10l8-5z",
    pause: "M4 3h3v10H4zM9 3h3v10H9z",
    next: "M4 3v10l7.5-5z",
    phaseback: "M11 4v8L6 8zM3 7h2v2H3z",
    phasenext: "M5 4v8l5-4zM11 7h2v2h-2z",
    last: "M11 3h2v10h-2zM2 3v10l7.5-5z",
  };
  const icon = (name) =>
    svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));

  class Transport {
    constructor(board) {
      this.board = board;
      const key = (name, label, f) =>
        el(
          "button",
          {
            class: name === "play" ? "play" : null,
            "aria-label": label,
            title: label,
            "data-do": name,
            on: { click: f },
          },
          icon(name),
        );
      this.playBtn = key("play", "Play", () => board.toggle());
      this.keys = el(
        "div",
        { class: "keys" },
        key("first", "First round", () => board.edge(0)),
        key("back", "Back one round", () => board.stepBy(-1)),
        key("phaseback", "Back one step inside the round", () => board.stepPhase(-1)),
        this.playBtn,
        key("phasenext", "One step inside the round", () => board.stepPhase(1)),
        key("next", "Next round", () => board.stepBy(1)),
        key("last", "Last round", () => board.edge(1)),
      );
      this.seg = el(
        "div",
        { class: "seg", role: "radiogroup", "aria-label": "Playback speed" },
        SPEEDS.map(([v, t]) =>
          el(
            "button",
            { role: "radio", "data-speed": v, "aria-checked": "false", on: { click: () => board.setSpeed(v) } },
            t,
          ),
        ),
      );
      this.canvas = el("canvas", { "aria-hidden": "true" });
      this.scrub = el("div", { class: "scrub", role: "slider", tabindex: 0, "aria-label": "Round" }, this.canvas);
      this.line1 = el("b");
      this.line2 = el("span");
      this.live = el("button", { class: "golive", hidden: true, on: { click: () => board.goLive() } }, "Live");
      this.line3 = el("span", { class: "slow" });
      this.where = el("div", { class: "where" }, this.line1, this.line2, this.line3, this.live);
      this.root = el("section", { class: "transport", "aria-label": "Playback" }, this.keys, this.seg, this.where);
      this.last = 0;
      this.drag();
    }
    drag() {
      let on = false;
      const to = (e) => {
        const b = this.scrub.getBoundingClientRect();
        this.board.scrubTo(Math.min(1, Math.max(0, (e.clientX - b.left) / Math.max(1, b.width))));
      };
      this.scrub.addEventListener("pointerdown", (e) => {
        on = true;
        this.scrub.setPointerCapture(e.pointerId);
        to(e);
      });
      this.scrub.addEventListener("pointermove", (e) => {
        if (on) to(e);
      });
      for (const name of ["pointerup", "pointercancel"])
        this.scrub.addEventListener(name, () => {
          on = false;
        });
    }

    /* v: {race, playing, speed, canLive, following, fresh, lane, round, phase, lanes, now, end, slow, theme, empty} */
    paint(v) {
      if (this.icon !== v.playing) {
        this.icon = v.playing;
        this.playBtn.replaceChildren(icon(v.playing ? "pause" : "play"));
        setAttr(this.playBtn, "aria-label", v.playing ? "Pause" : "Play");
        this.playBtn.title = v.playing ? "Pause" : "Play";
      }
      for (const b of this.seg.children) setAttr(b, "aria-checked", String(Number(b.dataset.speed) === v.speed));
      for (const b of this.keys.children) b.disabled = v.empty;
      const showLive = v.canLive && !v.following;
      this.live.hidden = !showLive;
      this.line2.hidden = showLive;
      const n = v.lane ? v.lane.committed : 0;
      setText(
        this.line1,
        v.empty ? "No rounds yet" : v.race ? span(v.now) : "Round " + (n ? v.round + 1 : 0) + " / " + n,
      );
      setText(
        this.line2,
        v.empty
          ? ""
          : v.race && v.following && v.canLive
            ? "running"
            : v.race
              ? pace(v.speed === 0 ? 1 : v.slow / v.speed)
              : span(v.now) + " engine",
      );
      const slow =
        v.empty || v.race || !v.lane || v.following || showLive ? "" : pace(SV.player.paceOf(v.lane, v.round, v.speed));
      setText(this.line3, slow);
      this.line3.hidden = !slow;
      for (const b of this.keys.children) if (b.dataset.do.startsWith("phase")) b.hidden = v.race;
      setAttr(this.scrub, "aria-valuemin", 0);
      setAttr(this.scrub, "aria-valuemax", v.race ? Math.round(v.end * 1e3) : Math.max(1, n));
      setAttr(this.scrub, "aria-valuenow", v.race ? Math.round(v.now * 1e3) : v.round + 1);
      setAttr(this.scrub, "aria-valuetext", this.valueText(v));
      this.draw(v);
    }
    /* "Round 22: 3 tokens" */
    valueText(v) {
      const r = !v.race && v.lane && v.lane.rounds[v.round];
      return r && r.upto > r.first
        ? "Round " + (v.round + 1) + ": " + SV.dom.count(r.upto - r.first, "token")
        : this.line1.textContent;
    }
    draw(v) {
      const w = this.board.scrubWidth,
        h = v.race ? 56 : this.board.strip;
      if (!w) return;
      const key = [
        w,
        v.theme,
        v.race,
        v.round,
        v.phase,
        v.following,
        ...v.lanes.map((l) => who(l) + ":" + l.committed),
        who(v.lane),
        h,
        this.board.scale,
        v.k,
        v.race ? v.now + "/" + v.end : "",
      ].join();
      if (key === this.key) return;
      if (v.following && v.canLive && !v.fresh && performance.now() - this.last < 240) {
        this.timer ??= setTimeout(() => {
          this.timer = null;
          this.board.soon();
        }, 240);
        return;
      } /* a growing run: four times a second */
      this.last = performance.now();
      this.key = key;
      const c = sheet(this.canvas, w, h);
      if (v.race) this.lines(c, v, w, h);
      else if (v.lane)
        SV.passes.draw(c, this.board.colors, v.lane, {
          k: v.k,
          now: v.round,
          n: this.board.scale,
          w,
          h,
          even: v.lane ? SV.passes.evenOf(v.lane, this.board.base()) : null,
        });
    }

    lines(c, v, w, h) {
      const p = this.board.colors,
        n = Math.max(1, v.lanes.length),
        gap = Math.min(13, (h - 6) / n),
        y0 = (h - gap * n) / 2,
        X = (t) => (t / v.end) * (w - 2);
      v.lanes.forEach((lane, li) => {
        const y = y0 + gap * (li + 1) - 2,
          end = SV.ribbon.endOfLane(lane);
        c.fillStyle = p.line2;
        c.fillRect(0, y, X(end), 1);
        let last = -9,
          past = true;
        c.fillStyle = p.ink;
        for (let i = 0; i < lane.committed; i++) {
          const t = SV.fold.endOf(lane, i),
            x = X(t);
          if (x - last < 1.2) continue;
          last = x;
          if (past && t > v.now) {
            past = false;
            c.fillStyle = p.ink3;
            c.globalAlpha = 0.5;
          }
          c.fillRect(x, y - 6, 1, 6);
        }
        c.globalAlpha = 1;
      });
      c.fillStyle = p.ink;
      c.fillRect(Math.min(w - 2, Math.max(0, X(v.now) - 1)), 0, 2, h);
    }
  }

  /* How much slower than the engine this is shown. */
  const pace = (k) =>
    !Number.isFinite(k) || k <= 0
      ? ""
      : k > 0.95 && k < 1.05
        ? "true time"
        : k >= 1
          ? "slowed " + +k.toPrecision(2) + "\u00d7"
          : "sped up " + +(1 / k).toPrecision(2) + "\u00d7";

  SV.transport = { Transport, SPEEDS };
})();
