/* Transport: play, step, speed, and a scrubber with one column a round whose height is what the round committed.
   In a race the scrubber is one thin line a lane on the shared clock. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
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
      this.root = el(
        "section",
        { class: "panel transport", "aria-label": "Playback" },
        this.keys,
        this.seg,
        this.scrub,
        this.where,
      );
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

    /* v: {race, playing, speed, canLive, following, lane, round, phase, lanes, now, end, slow, theme, empty} */
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
      setText(this.line1, v.empty ? "No run yet" : v.race ? span(v.now) : "Round " + (n ? v.round + 1 : 0) + " / " + n);
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
      setAttr(this.scrub, "aria-valuetext", this.line1.textContent);
      this.draw(v);
    }
    draw(v) {
      const w = this.board.scrubWidth,
        h = 56;
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
        v.race ? v.now + "/" + v.end : "",
      ].join();
      if (key === this.key) return;
      if (v.following && v.canLive && performance.now() - this.last < 240) {
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
      else if (v.lane) this.columns(c, v, w, h);
    }

    columns(c, v, w, h) {
      const p = this.board.colors,
        n = v.lane.committed;
      if (!n) return;
      const cw = Math.min(44, w / n),
        most = Math.max(1, ...v.lane.rounds.slice(0, n).map((r) => r.upto - r.first));
      const unit = Math.min(6, 36 / most),
        bw = Math.max(0.8, Math.min(28, cw - (cw > 4 ? 3 : cw > 2 ? 0.6 : 0)));
      const every = Math.max(1, Math.ceil(22 / cw));
      if (v.round < n) {
        c.fillStyle = p.sunken;
        c.fillRect(v.round * cw, 0, Math.max(3, cw), h);
        c.fillStyle = p.ink;
        c.fillRect(v.round * cw, h - 2, Math.max(3, cw), 2);
      }
      for (let i = 0; i < n; i++) {
        const r = v.lane.rounds[i],
          x = i * cw + (cw - bw) / 2;
        c.globalAlpha = i <= v.round ? 1 : 0.34;
        let y = h - 17;
        for (let j = r.first; j < r.upto; j++) {
          y -= unit;
          block(c, p, v.lane.tokens[j].v, x, y, bw, Math.max(0.7, unit - (unit > 3 ? 1 : 0)));
        }
        if (i % every === 0 || i === v.round) this.number(c, p, i, v.round, every, i * cw + cw / 2, h, w);
      }
      c.globalAlpha = 1;
    }
    number(c, p, i, cur, every, x, h, w) {
      if (i !== cur && Math.abs(i - cur) < every) return;
      c.font = (i === cur ? "600 " : "") + "10px " + p.sans;
      c.fillStyle = i === cur ? p.ink : p.ink3;
      c.textAlign = "center";
      c.fillText(String(i + 1), Math.min(w - 8, Math.max(6, x)), h - 5);
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

  function block(c, p, v, x, y, w, h) {
    if (v === "cor" && h > 2.5 && w > 4) {
      c.strokeStyle = p.cor;
      c.lineWidth = 1.5;
      c.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5);
      return;
    }
    c.fillStyle = v === "acc" ? p.acc : v === "cor" ? p.cor : v === "bon" ? p.bon : p.ink3;
    c.fillRect(x, y, w, h);
    if (v === "bon" && w > 5 && h > 3) {
      c.fillStyle = p.surface;
      c.fillRect(x + w / 2 - 1, y + h / 2 - 1, 2, 2);
    }
  }

  SV.transport = { Transport, SPEEDS };
})();
