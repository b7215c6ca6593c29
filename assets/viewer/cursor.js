/* Where the board stands in the trace, and how it gets elsewhere: rounds and phases in Watch, engine time in a race, playback. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const F = SV.fold,
    M = SV.metrics;
  const STILL = 900; /* ms a still is shown at speed 1 */

  SV.cursor = {
    setLayout(name) {
      const want = name === "race" || name === "watch" ? name : null;
      if (want === (this.options.layout ?? null)) return;
      const t = this.now(),
        at = this.focus(),
        wasRace = this.race();
      this.options.layout = want;
      if (at && this.race() !== wasRace) this.standAt(t);
      this.later();
    },
    /* The same moment of the engine's clock in the other layout, or on another lane. */
    standAt(t) {
      const c = this.cur,
        lane = this.focus();
      c.left = null;
      if (c.mode === "follow" || !lane) return;
      c.t = Math.min(t, this.end());
      Object.assign(c, { round: Math.max(0, Math.min(lane.committed, F.at(lane, { t: c.t + 1e-9 }).k) - 1), phase: 4 });
    },
    race() {
      const o = this.options.layout;
      return o === "race" || (o !== "watch" && this.list().filter((l) => !M.isBaseline(l)).length > 1);
    },
    focus() {
      const lanes = this.list();
      return lanes.find((l) => l.id === this.ui.focus) || lanes.find((l) => !M.isBaseline(l)) || lanes[0] || null;
    },
    end() {
      return Math.max(1e-6, ...this.list().map(SV.ribbon.endOfLane));
    },
    now() {
      const c = this.cur,
        lane = this.focus();
      if (!lane) return 0;
      if (c.mode === "follow") return this.race() ? this.end() : SV.ribbon.endOfLane(lane);
      if (this.race()) return c.t;
      const r = lane.rounds[c.round];
      if (!r) return 0;
      const ends = [
        F.startOf(lane, c.round),
        r.draft && r.draft.t1,
        r.verify && r.verify.t1,
        r.verify && r.verify.t1,
        F.endOf(lane, c.round),
      ];
      return ends[c.phase] ?? F.startOf(lane, c.round);
    },
    cursorOf(lane) {
      const c = this.cur;
      if (c.mode === "follow") return "end";
      if (!this.race() && lane === this.focus()) return { round: c.round, phase: c.phase };
      if (!this.race() && this.ended()) return "end";
      return { t: this.now() };
    },
    /* At rest where the open lane ends: nothing of the others is still to come. */
    ended() {
      const c = this.cur,
        lane = this.focus();
      return Boolean(c.mode === "hold" && lane?.done && c.round >= lane.committed - 1 && c.phase === 4);
    },
    hold() {
      if (this.cur.mode === "follow") {
        const l = this.focus();
        Object.assign(this.cur, { round: l ? Math.max(0, l.committed - 1) : 0, phase: 4, t: this.end() });
      }
      this.cur.mode = "hold";
      this.cur.left = null;
    },
    goto(round, phase = 4) {
      this.hold();
      const lane = this.focus();
      if (!lane) return;
      this.cur.round = Math.max(0, Math.min(lane.committed - 1, round));
      this.cur.phase = phase;
      if (this.race()) this.cur.t = F.endOf(lane, this.cur.round) ?? 0;
      this.ui.sel = null;
      this.later();
    },
    stepBy(d) {
      const lane = this.focus();
      if (!lane) return;
      const at = F.at(lane, this.cursorOf(lane)).k - 1;
      if (this.race()) this.goto(at + d);
      else {
        const c = this.cur;
        this.hold();
        this.goto(d < 0 && c.phase < 4 ? c.round - 1 : d > 0 && c.phase < 4 ? c.round : c.round + d);
      }
    },
    stepPhase(d) {
      const lane = this.focus();
      if (!lane || this.race()) return this.stepBy(d);
      this.hold();
      const c = this.cur,
        plain = !lane.rounds[c.round] || !lane.rounds[c.round].nodes.length;
      const to = c.phase + d;
      if (plain || to > 4) this.goto(c.round + d, d > 0 && !plain && c.round + 1 < lane.committed ? 1 : 4);
      else if (to < 1) this.goto(c.round - 1, 4);
      else {
        c.phase = to;
        this.ui.sel = null;
        this.later();
      }
    },
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
    },
    scrubTo(x) {
      if (this.race()) return this.seekTime(x * this.end());
      const lane = this.focus();
      if (!lane || !lane.committed) return;
      const at = lane.tokens[Math.floor(x * this.scale)];
      this.goto(at ? at.round : lane.committed - 1);
    },
    seekTime(t) {
      const lane = this.focus();
      if (!lane) return;
      this.hold();
      if (this.race()) {
        this.cur.t = Math.max(0, Math.min(this.end(), t));
        this.ui.sel = null;
        this.later();
      } else this.goto(F.at(lane, { t }).k, 4);
    },
    goLive() {
      this.cur.mode = "follow";
      this.ui.sel = null;
      this.later();
    },
    setSpeed(v) {
      this.ui.speed = v;
      this.cur.left = null;
      this.root.style.setProperty("--sv-k", String(v === 0 ? 0.05 : 1 / v));
      this.later();
    },
    setMarks(on) {
      this.ui.marks = Boolean(on);
      this.later();
    },
    setFilter(name) {
      this.ui.filter = this.ui.filter === name ? null : name;
      this.later();
    },
    focusLane(id) {
      if (this.focus()?.id === id) return;
      const t = this.now(),
        last = !this.race() && this.cur.round >= (this.focus()?.committed ?? 0) - 1;
      this.ui.focus = id;
      this.ui.sel = null;
      if (!this.race()) this.standAt(last ? this.end() : t);
      this.later();
    },
    selectNode(laneId, round, node, stay) {
      const playing = this.cur.mode === "play";
      if (this.cur.mode !== "follow" || !stay) this.hold();
      this.ui.focus = this.race() ? laneId : this.ui.focus;
      if (!stay && this.focus() && laneId === this.focus().id) {
        this.cur.round = round;
        this.cur.phase = 4;
        if (this.race()) this.cur.t = F.endOf(this.focus(), round) ?? this.cur.t;
      }
      if (playing && this.cur.mode === "play") this.cur.mode = "hold";
      this.ui.sel = { lane: laneId, round, node };
      this.shut.insp.set(true); /* whoever asks for a token asks why */
      this.later();
    },

    /* A token was selected: scroll its explanation into view. */
    ask(...token) {
      this.selectNode(...token);
      this.bring = true;
    },

    /* ---- playback ---- */
    toggle() {
      if (this.cur.mode === "play") {
        this.hold();
        this.later();
      } else this.play();
    },
    play() {
      const lane = this.focus();
      if (!lane || !lane.committed) return;
      const atEnd =
        this.cur.mode === "follow" ||
        (this.race() ? this.cur.t >= this.end() - 1e-6 : this.cur.round >= lane.committed - 1 && this.cur.phase >= 4);
      this.hold();
      if (atEnd) this.edge(0);
      this.cur.mode = "play";
      this.ui.sel = null;
      this.stamp = null;
      this.later();
    },
    advance(now) {
      const dt = this.stamp === null ? 0 : Math.min(250, now - this.stamp),
        c = this.cur,
        s = this.ui.speed;
      this.stamp = now;
      let on = true;
      if (this.still) on = this.stepOn(dt);
      else if (this.race()) {
        c.t += (dt / 1e3) * (s === 0 ? 1 : s / SV.player.slowdown(this.end()));
        if (c.t >= this.end()) {
          c.t = this.end();
          on = false;
        }
      } else on = SV.player.watch(c, this.focus(), dt, s);
      if (!on) {
        c.mode = this.state === "live" ? "follow" : "hold";
        c.left = null;
      }
    },
    /* With reduced motion playing is a series of stills: whole rounds, and in a race a twentieth of it at a time. */
    stepOn(dt) {
      const c = this.cur,
        pause = STILL / Math.min(2, this.ui.speed || 1);
      c.phase = 4;
      c.left = (c.left ?? pause) - dt;
      if (c.left > 0) return true;
      c.left = null;
      if (this.race()) {
        c.t = Math.min(this.end(), c.t + this.end() / 20);
        return c.t < this.end();
      }
      if (c.round + 1 >= this.focus().committed) return false;
      c.round++;
      return true;
    },
  };
})();
