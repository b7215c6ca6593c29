/* The board: owns the folded trace and one cursor, and paints both in one animation frame. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { el, setText, palette } = SV.dom;
  const F = SV.fold, M = SV.metrics;
  const LEGEND = [["acc", "accepted", "accepted"], ["rej", "rejected", "rejected"], ["cor", "correction", "correction"], ["bon", "bonus", "bonus"], ["ski", "never examined", "skipped"]];

  class Board {
    constructor(root, options) {
      this.root = root;
      this.options = options || {};
      this.cur = { mode: "follow", round: 0, phase: 4, t: 0, left: null };
      this.ui = { focus: null, sel: null, filter: null, speed: 1 };
      this.still = globalThis.matchMedia ? matchMedia("(prefers-reduced-motion: reduce)").matches : false;
      this.reset();
      this.box = SV.frames.intake();
      this.build();
      this.listen();
      this.measure();
      this.setState("idle");
    }

    reset() {
      this.st = F.initial();
      this.state = "idle";
      this.statusText = "";
      this.statusState = null;
      this.reopened = false;
      Object.assign(this.cur, { mode: "follow", round: 0, phase: 4, t: 0, left: null });
      Object.assign(this.ui, { focus: null, sel: null });
    }

    build() {
      this.notice = new SV.notice.Notice();
      this.transport = new SV.transport.Transport(this);
      this.inspector = new SV.inspector.Inspector(this);
      this.ribbon = new SV.ribbon.Ribbon(this);
      this.chart = new SV.chart.Chart(this);
      this.figures = new SV.figures.Figures();
      this.legend = el("div", { class: "legend", role: "group", "aria-label": "Show only" }, LEGEND.map(([cls, name]) =>
        el("button", { "aria-pressed": "false", "data-filter": name, title: "Show only these", on: { click: () => this.setFilter(name) } }, el("span", { class: "k t " + cls, "aria-hidden": "true" }, "Aa"), name, el("span", { class: "n" }))), (this.asked = el("bdi", { class: "asked" })));
      this.blank = el("div", { class: "blank" }, el("b", null, "Nothing has run yet"), "Several tokens can arrive from one pass of a large model. Choose a method and press Run to watch it happen.");
      this.lanesBox = el("div", { class: "lanes" });
      this.stagePanel = el("section", { class: "panel p-stage", "aria-label": "Text" }, this.legend, this.blank, this.lanesBox);
      const key = (keys, what) => el("span", null, keys.map((k) => el("kbd", null, k)), what);
      this.hints = el("div", { class: "hints" }, key(["space"], "play"), key(["\u2190", "\u2192"], "round"), key(["shift", "\u2190", "\u2192"], "phase"), key(["home", "end"], "first, last"), key(["[", "]"], "speed"));
      this.announce = el("span", { "aria-live": "polite", css: { position: "absolute", width: "1px", height: "1px", overflow: "hidden", "clip-path": "inset(50%)" } });
      this.root.replaceChildren(this.notice.root, this.transport.root, el("div", { class: "grid" }, this.stagePanel, this.inspector.root, this.ribbon.root, this.chart.root), this.figures.root, this.hints, this.announce);
      this.lanes = new Map();
      if (!this.root.hasAttribute("tabindex")) this.root.tabIndex = -1;
    }

    listen() {
      this.onKey = (e) => SV.keys.handle(this, e);
      this.root.addEventListener("keydown", this.onKey);
      this.onDocKey = (e) => { if (e.target === document.body) SV.keys.handle(this, e); };
      document.addEventListener("keydown", this.onDocKey);
      this.sized = new ResizeObserver(() => { this.measure(); this.later(); });
      this.sized.observe(this.root);
      this.sized.observe(this.transport.scrub);
      this.themed = new MutationObserver(() => this.retheme());
      for (const n of [document.documentElement, document.body]) this.themed.observe(n, { attributes: true, attributeFilter: ["class", "style"] });
      this.dark = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
      this.onScheme = () => this.retheme();
      this.dark?.addEventListener?.("change", this.onScheme);
      this.retheme();
    }
    retheme() { this.colors = palette(this.root); this.theme = SV.text.hash(Object.values(this.colors).join()); this.later(); }
    measure() {
      const w = this.root.clientWidth || 1000;
      this.width = w;
      this.scrubWidth = this.transport.scrub.clientWidth;
      this.narrow = w <= 640;
      this.mid = w <= 980;
      this.root.classList.toggle("narrow", this.narrow);
      this.root.classList.toggle("mid", this.mid);
    }

    /* ---- records in ---- */
    push(text) {
      for (const act of SV.frames.take(this.box, text)) {
        if (act.kind === "new") this.reset();
        else if (act.kind === "records") this.add(act.e);
        else if (act.kind === "snap") this.snap(act);
        else if (act.kind === "status") this.setStatus(act.status);
      }
      this.settle();
    }
    load(records) {
      this.reset();
      this.add(records || []);
      this.reopened = true;
      this.settle();
      this.begin();
    }
    add(records) { F.fold(records, this.st); }
    snap(act) {
      const was = this.st.records;
      if (act.mend) { this.st = F.fold(act.e); this.ui.sel = null; } else this.add(act.e);
      if (was || !this.st.records) return;
      if (!this.isLive()) { this.settle(); this.begin(); } else if (act.fresh) { this.reopened = true; this.edge(1); } /* an earlier run, opened again */
    }
    isLive() { const h = this.header(); return Boolean(h && h.mode === "live"); }
    header() { for (const l of this.list()) if (l.header) return l.header; return null; }
    /* In the order shown: the methods as they came, plain decoding last. */
    list() { const all = this.st.order.map((id) => this.st.lanes.get(id)); return [...all.filter((l) => !M.isBaseline(l)), ...all.filter((l) => M.isBaseline(l))]; }
    setStatus(s) {
      if (!s || typeof s !== "object") return;
      this.statusState = typeof s.state === "string" ? s.state : null;
      this.statusText = typeof s.text === "string" ? SV.text.joined(SV.text.visible(s.text)).slice(0, 400) : "";
    }
    settle() {
      const lanes = this.list(), failed = lanes.find((l) => l.error);
      let s = lanes.length ? (lanes.every((l) => l.done || l.error) ? (lanes.some((l) => l.done && ["stopped", "deadline"].includes(l.done.finish)) ? "stopped" : "done") : this.isLive() ? "live" : "done") : "idle";
      if (failed) { s = "error"; if (!this.statusText) this.statusText = SV.text.joined(SV.text.visible(String(failed.error.why || "This method failed."))).slice(0, 300); }
      this.setState(this.statusState || s);
      this.root.dataset.seq = String(this.box.last);
      this.root.dataset.lost = String(this.box.lost);
      this.root.dataset.gaps = String(this.box.gaps);
      this.root.dataset.records = String(this.st.records);
      this.later();
    }
    setState(s) {
      if (s === this.state && s === this.root.dataset.state) return;
      this.state = s;
      this.root.dataset.state = s;
      if (["done", "stopped", "error"].includes(s)) setText(this.announce, s === "error" ? this.statusText : "The run has ended. " + this.list().map((l) => SV.stage.titleOf(l) + ": " + F.sumAt(l, l.committed).tokens + " tokens").join(", "));
    }
    /* A finished trace begins at its beginning, moving; with reduced motion it rests on its last round. */
    begin() {
      if (!this.list().some((l) => l.committed)) return;
      if (this.still || this.options.autoplay === false) { this.cur.mode = "hold"; this.edge(1); } else { this.edge(0); this.play(); }
    }

    /* ---- cursor ---- */
    race() { const o = this.options.layout; return o === "race" || (o !== "watch" && this.list().filter((l) => !M.isBaseline(l)).length > 1); }
    focus() {
      const lanes = this.list();
      return lanes.find((l) => l.id === this.ui.focus) || lanes.find((l) => !M.isBaseline(l)) || lanes[0] || null;
    }
    end() { return Math.max(1e-6, ...this.list().map(SV.ribbon.endOfLane)); }
    now() {
      const c = this.cur, lane = this.focus();
      if (!lane) return 0;
      if (c.mode === "follow") return this.race() ? this.end() : SV.ribbon.endOfLane(lane);
      if (this.race()) return c.t;
      const r = lane.rounds[c.round];
      if (!r) return 0;
      const ends = [F.startOf(lane, c.round), r.draft && r.draft.t1, r.verify && r.verify.t1, r.verify && r.verify.t1, F.endOf(lane, c.round)];
      return ends[c.phase] ?? F.startOf(lane, c.round);
    }
    cursorOf(lane) {
      const c = this.cur;
      if (c.mode === "follow") return "end";
      if (!this.race() && lane === this.focus()) return { round: c.round, phase: c.phase };
      return { t: this.now() };
    }
    hold() {
      if (this.cur.mode === "follow") { const l = this.focus(); Object.assign(this.cur, { round: l ? Math.max(0, l.committed - 1) : 0, phase: 4, t: this.end() }); }
      this.cur.mode = "hold";
      this.cur.left = null;
    }
    goto(round, phase = 4) {
      this.hold();
      const lane = this.focus();
      if (!lane) return;
      this.cur.round = Math.max(0, Math.min(lane.committed - 1, round));
      this.cur.phase = phase;
      if (this.race()) this.cur.t = F.endOf(lane, this.cur.round) ?? 0;
      this.ui.sel = null;
      this.later();
    }
    stepBy(d) {
      const lane = this.focus();
      if (!lane) return;
      const at = F.at(lane, this.cursorOf(lane)).k - 1;
      if (this.race()) this.goto(at + d);
      else { const c = this.cur; this.hold(); this.goto(d < 0 && c.phase < 4 ? c.round - 1 : d > 0 && c.phase < 4 ? c.round : c.round + d); }
    }
    stepPhase(d) {
      const lane = this.focus();
      if (!lane || this.race()) return this.stepBy(d);
      this.hold();
      const c = this.cur, plain = !lane.rounds[c.round] || !lane.rounds[c.round].nodes.length;
      const to = c.phase + d;
      if (plain || to > 4) this.goto(c.round + d, d > 0 && !plain && c.round + 1 < lane.committed ? 1 : 4);
      else if (to < 1) this.goto(c.round - 1, 4);
      else { c.phase = to; this.ui.sel = null; this.later(); }
    }
    edge(last) {
      const lane = this.focus();
      if (!lane) return;
      this.hold();
      this.cur.round = last ? Math.max(0, lane.committed - 1) : 0;
      this.cur.phase = 4;
      this.cur.t = last ? this.end() : 0;
      this.ui.sel = null;
      if (!last && !this.race()) this.cur.phase = lane.rounds[0] && lane.rounds[0].nodes.length ? 1 : 4;
      this.later();
    }
    scrubTo(x) {
      if (this.race()) return this.seekTime(x * this.end());
      const lane = this.focus();
      if (!lane || !lane.committed) return;
      const w = this.scrubWidth, cw = Math.min(44, w / lane.committed);
      this.goto(Math.floor((x * w) / cw));
    }
    seekTime(t) {
      const lane = this.focus();
      if (!lane) return;
      this.hold();
      if (this.race()) { this.cur.t = Math.max(0, Math.min(this.end(), t)); this.ui.sel = null; this.later(); }
      else this.goto(F.at(lane, { t }).k, 4);
    }
    goLive() { this.cur.mode = "follow"; this.ui.sel = null; this.later(); }
    setSpeed(v) { this.ui.speed = v; this.cur.left = null; this.root.style.setProperty("--sv-k", String(v === 0 ? 0.05 : 1 / v)); this.later(); }
    setFilter(name) { this.ui.filter = this.ui.filter === name ? null : name; this.later(); }
    focusLane(id) { this.ui.focus = id; this.ui.sel = null; this.later(); }
    selectNode(laneId, round, node, stay) {
      const playing = this.cur.mode === "play";
      if (this.cur.mode !== "follow" || !stay) this.hold();
      this.ui.focus = this.race() ? laneId : this.ui.focus;
      if (!this.race() && !stay && this.focus() && laneId === this.focus().id) { this.cur.round = round; this.cur.phase = 4; }
      if (playing && this.cur.mode === "play") this.cur.mode = "hold";
      this.ui.sel = { lane: laneId, round, node };
      this.later();
    }

    /* ---- playback ---- */
    toggle() { if (this.cur.mode === "play") { this.hold(); this.later(); } else this.play(); }
    play() {
      const lane = this.focus();
      if (!lane || !lane.committed) return;
      const atEnd = this.cur.mode === "follow" || (this.race() ? this.cur.t >= this.end() - 1e-6 : this.cur.round >= lane.committed - 1 && this.cur.phase >= 4);
      this.hold();
      if (atEnd) this.edge(0);
      this.cur.mode = "play";
      this.ui.sel = null;
      this.stamp = null;
      this.later();
    }
    advance(now) {
      const dt = this.stamp === null ? 0 : Math.min(250, now - this.stamp), c = this.cur, s = this.ui.speed;
      this.stamp = now;
      let on = true;
      if (this.race()) {
        c.t += (dt / 1e3) * (s === 0 ? 1 : s / SV.player.slowdown(this.end()));
        if (c.t >= this.end()) { c.t = this.end(); on = false; }
      } else if (this.still) {
        c.phase = 4;
        c.left = (c.left ?? 900) - dt;
        if (c.left <= 0) { c.left = null; if (c.round + 1 < this.focus().committed) c.round++; else on = false; }
      } else on = SV.player.watch(c, this.focus(), dt, s);
      if (!on) { c.mode = this.state === "live" ? "follow" : "hold"; c.left = null; }
    }

    /* ---- painting ---- */
    later() { if (!this.frame && !this.dead) this.frame = requestAnimationFrame((t) => { this.frame = 0; if (this.cur.mode === "play") this.advance(t); this.paint(); if (this.cur.mode === "play") this.later(); }); }
    paint() { if (!this.dead) SV.paint.all(this); }
    destroy() {
      this.dead = true;
      cancelAnimationFrame(this.frame);
      this.sized.disconnect();
      this.themed.disconnect();
      document.removeEventListener("keydown", this.onDocKey);
      this.root.removeEventListener("keydown", this.onKey);
      this.dark?.removeEventListener?.("change", this.onScheme);
      this.chart.stop();
      for (const part of [this.ribbon, this.inspector]) clearTimeout(part.timer);
      this.root.replaceChildren();
    }
  }

  SV.board = { Board, LEGEND };
  globalThis.SpecVizBoard = {
    mount(root, { frames, trace, options } = {}) {
      root.classList.add("sv");
      const board = new Board(root, options);
      if (trace) board.load(trace);
      if (frames) board.push(frames);
      const api = { push: (s) => board.push(s), load: (r) => board.load(r), destroy: () => board.destroy() };
      Object.defineProperty(api, "board", { value: board }); /* for tests and lessons */
      return api;
    },
  };
})();
