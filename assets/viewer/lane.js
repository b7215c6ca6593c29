/* A lane: name, figures, track, stage and rail. The same nodes serve Watch (stacked) and Race (three columns). */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText, rate, sheet, term, who } = SV.dom;
  const { Stage, titleOf, knobsOf } = SV.stage;

  class Lane {
    constructor(id, board) {
      this.id = id;
      this.board = board;
      this.stage = new Stage();
      this.name = el("h2");
      this.knobs = el("span", { class: "knobs" });
      this.rate = el("span", { class: "rate" }, (this.rateN = el("span")), el("small", null, "tok/s"));
      this.per = el("span", { class: "per", title: "Accepted length: " + SV.metrics.DEFINITIONS.accepted_length[1] });
      this.pick = el("button", { class: "pick", title: "Show this method's rounds below" }, this.name, this.knobs);
      this.status = el("span", { class: "status" });
      this.a = el("b");
      this.b = el("b");
      this.fin = el(
        "div",
        { class: "fin" },
        this.status,
        el("span", null, this.a, (this.aLabel = el("span"))),
        (this.sep = el("span", { class: "sep" })),
        el(
          "span",
          null,
          (this.term = term("accepted_length", "accepted length")),
          " ",
          this.b,
          (this.bLabel = el("em")),
          (this.soFar = el("em", { class: "sofar" })),
        ),
        (this.own = el("span", { class: "own" })),
      );
      this.badges = el("div", { class: "badges", hidden: true });
      this.track = el("canvas", { "aria-hidden": "true" });
      this.fault = el("p", { class: "fault", hidden: true });
      this.cells = el("div", { class: "cells" });
      this.lost = el("span");
      this.rail = el(
        "div",
        { class: "rail" },
        el("div", { class: "cap" }, el("span", null, "Drafted, not kept"), this.lost),
        this.cells,
        this.fault,
      );
      this.root = el(
        "section",
        { class: "lane", "data-lane": id },
        el("div", { class: "id" }, this.pick, this.rate, this.per, this.badges),
        this.fin,
        el("div", { class: "track" }, this.track),
        this.stage.box,
        this.rail,
      );
      this.pick.addEventListener("click", () => board.focusLane(id));
      this.stage.box.addEventListener("click", (e) => this.clicked(e));
      this.cells.addEventListener("click", (e) => this.clicked(e));
      this.keys = {};
    }

    clicked(e) {
      const t = e.target.closest("[data-i], [data-node], [data-cell]");
      if (!t || (t.dataset.i === "" && !t.dataset.node)) return;
      const lane = this.lane,
        cell = t.closest("[data-cell]");
      if (t.dataset.i) {
        const tok = lane.tokens[Number(t.dataset.i)];
        if (tok) this.board.ask(this.id, tok.round, tok.node);
      } else if (cell)
        this.board.ask(this.id, Number(cell.dataset.cell), t.dataset.node ? Number(t.dataset.node) : null);
      else if (t.dataset.node) this.board.ask(this.id, this.view.k, Number(t.dataset.node), true);
    }

    /* view: {k, phase, sel, motion, race, base, focus, m (metrics), width} */
    paint(lane, view) {
      const old = this.view || {};
      this.view = view;
      const key = [
        lane.seen,
        view.k,
        view.phase,
        view.sel && [view.sel.lane, view.sel.round, view.sel.node].join(":"),
        view.filter,
        view.marks,
        view.theme,
        view.scale,
        view.width,
        view.shape,
        view.race,
        view.base,
        view.focus,
        view.live,
        view.motion,
        this.board.ui.speed,
      ].join();
      this.moved = false;
      if (this.drawn === key && this.lane === lane) {
        this.view = { ...old, ...view };
        return;
      } /* nothing in this lane has changed */
      this.drawn = key;
      if (this.lane !== lane) {
        const grid = SV.output.of(lane).side > 0;
        this.root.classList.toggle("painting", grid);
        SV.folding.painting(this.board, grid);
      }
      this.lane = lane;
      const n = SV.fold.upto(lane, view.k),
        r = lane.rounds[view.k - 1],
        next = lane.rounds[view.k];
      const from = view.phase ? n : r && r.upto ? r.first : n;
      const falling =
        !SV.output.of(lane).side && view.motion && view.phase === 3 && old.phase === 2
          ? SV.rail.positions.call(this)
          : null;
      const grew = old.n !== n || old.phase !== view.phase || old.lane !== lane;
      this.stage.paint(lane, n, from, {
        round: view.phase ? next : null,
        phase: view.phase,
        motion: view.motion,
        land: view.motion,
        sel: this.selected(lane, view),
        ended: Boolean(lane.done && view.k >= lane.committed),
        few: view.race && view.live,
        marks: view.marks,
        coming: Boolean(lane.done) && !view.race && !view.live,
      });
      Object.assign(view, { n, lane });
      SV.rail.paintRail.call(this, lane, view);
      this.paintWords(lane, view);
      if (view.race) this.paintTrack(lane, view);
      this.filter(view.filter);
      if (falling) SV.rail.drop.call(this, falling);
      this.moved = grew || view.shape !== old.shape;
      this.root.classList.toggle("base", Boolean(view.base));
      this.root.classList.toggle("focus", Boolean(view.race && view.focus));
    }

    selected(lane, view) {
      if (!view.sel || view.sel.lane !== this.id) return null;
      const r = lane.rounds[view.sel.round];
      if (!r || !r.upto || view.sel.round >= view.k) return null;
      for (let i = r.first; i < r.upto; i++) if (lane.tokens[i].node === view.sel.node) return i;
      return null;
    }

    paintWords(lane, view) {
      const m = view.m,
        base = SV.metrics.isBaseline(lane);
      setText(this.name, titleOf(lane));
      setText(this.knobs, knobsOf(lane.header) + (view.base ? " at the same moment" : ""));
      setText(this.rateN, rate(m.tokens_per_second));
      setText(this.per, m.block_efficiency === null ? "\u2013" : m.block_efficiency.toFixed(2) + " tokens a pass");
      setText(this.status, statusOf(lane, view));
      setText(this.a, String(m.tokens));
      setText(this.aLabel, m.tokens === 1 ? " token" : " tokens");
      const scales = !view.race && SV.output.of(lane).grids; /* two models write them: no tokens of one pass */
      this.b.hidden = this.bLabel.hidden = Boolean(scales);
      setText(
        this.b,
        view.race
          ? String(m.passes ?? "\u2013")
          : m.block_efficiency === null
            ? "\u2013"
            : m.block_efficiency.toFixed(2),
      );
      setText(
        this.bLabel,
        view.race
          ? m.passes === 1
            ? " target pass"
            : " target passes"
          : view.base
            ? " per target pass"
            : " tokens per target pass",
      );
      setText(
        this.soFar,
        view.race || scales || m.block_efficiency === null || SV.figures.whole(lane, view.k) ? "" : " so far",
      );
      const copied = view.k >= lane.committed ? SV.metrics.remembered(lane) : 0,
        share = Math.round((100 * copied) / m.tokens) + " %";
      setText(this.own, copied ? `${view.race ? "" : ", "}${copied} (${share}) copied from your earlier answers` : "");
      this.term.hidden = Boolean(
        view.race || view.base || SV.output.of(lane).grids,
      ); /* a scale is not accepted, it is painted */
      setText(this.sep, view.race || scales ? "" : ", ");
      const s = SV.fold.sumAt(lane, view.k),
        why =
          lane.error && view.k >= lane.committed
            ? SV.text.joined(SV.text.visible(String(lane.error.why || "This method failed."))).slice(0, 240)
            : "";
      setText(this.fault, why);
      this.fault.hidden = !why;
      this.cells.hidden = Boolean(why);
      setText(this.lost, base ? "" : SV.serverFacts.is(lane) ? lostBy(m) : lostCount(lane, view, s));
      this.badges.hidden = !SV.serverFacts.is(lane);
      if (!this.badges.hidden) this.badges.replaceChildren(...SV.serverTable.line(lane).filter(Boolean));
    }

    /* A strip of blocks, one a committed token: bursts are visible at a glance. Only what is new is drawn. */
    paintTrack(lane, view) {
      const w = view.width,
        unit = Math.min(12, w / Math.max(view.scale, 1));
      const base = [w, unit, view.theme, who(lane)].join(),
        grown = base === this.keys.track && view.k >= this.keys.k;
      if (!w || (grown && view.k === this.keys.k)) return;
      const c = grown ? this.pen : sheet(this.track, w, 11),
        from = grown ? this.keys.k : 0;
      this.pen = c;
      for (let i = from; i < view.k; i++) {
        const r = lane.rounds[i];
        for (let j = r.first; j < r.upto; j++) {
          this.block(c, lane.tokens[j].v, j * unit, unit, j === r.upto - 1);
          if (!SV.grammarView.forced(r, lane.tokens[j].node ?? "tail")) continue;
          c.fillStyle = this.board.colors.ink; /* the grammar left no choice: underlined */
          c.fillRect(j * unit, 9, Math.max(0.6, unit - 1), 2);
        }
      }
      Object.assign(this.keys, { track: base, k: view.k });
    }
    block(c, v, x, unit, last) {
      const p = this.board.colors,
        w = Math.max(0.6, unit - (unit > 5 ? (last ? 2 : 1) : 0));
      c.fillStyle = v === "acc" ? p.acc : v === "cor" ? p.cor : v === "bon" ? p.bon : p.ink3;
      if (v === "cor" && unit > 4) {
        c.strokeStyle = p.cor;
        c.lineWidth = 1.5;
        c.strokeRect(x + 0.75, 1.75, w - 1.5, 7.5);
      } else c.fillRect(x, 1, w, 9);
      if (v === "bon" && unit > 5) {
        c.fillStyle = p.surface;
        c.fillRect(x + w / 2 - 1, 4.5, 2, 2);
      }
    }

    filter(f) {
      if (f === this.keys.filter && !f) return;
      this.keys.filter = f;
      const meant = (t) => (f === "forced" ? "forced" in t.dataset : t.dataset.v === f);
      for (const t of this.root.querySelectorAll(".t")) t.classList.toggle("dim", Boolean(f) && !meant(t));
      this.stage.old.classList.toggle("dim", Boolean(f));
    }
  }

  /* What was drafted and not kept so far, the round under judgement included: its refused tokens lie on the rail already. */
  function lostCount(lane, view, s) {
    const r = view.phase >= 3 ? lane.rounds[view.k] : null,
      now = (verdict) => (r ? [...r.judges.values()].filter((j) => j.verdict === verdict).length : 0);
    return SV.messages.say("rail.lost", {
      rejected: String(s.rejected + now("rejected")),
      skipped: String(s.skipped + now("skipped")),
    });
  }
  const lostBy = (m) =>
    m.drafted === null ? "unknown" : m.drafted - m.accepted + " drafted and not kept; which, is unknown";
  const FINISH = {
    stop: "finished",
    length: "length reached",
    stop_string: "stop text met",
    stopped: "stopped",
    deadline: "time is up",
    context: "context full",
    error: "failed",
  };
  function statusOf(lane, view) {
    if (lane.error && view.k >= lane.committed) return "failed";
    if (lane.done && view.k >= lane.committed) return FINISH[lane.done.finish] || "finished";
    const r = lane.rounds[view.k];
    if (view.phase === 1) return "drafted " + r.nodes.length;
    if (view.phase === 2) return r.nodes.length ? "verifying " + r.nodes.length : "target pass";
    if (view.phase === 3 && r.nodes.length) return "judging";
    return view.k ? (view.live ? "running" : "round " + view.k) : lane.prefill ? "prompt read" : "waiting";
  }

  Object.assign(Lane.prototype, SV.rail);
  SV.lane = { Lane, statusOf };
})();
