/* A lane: name, figures, track, stage and rail. The same nodes serve Watch (stacked) and Race (three columns). */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { el, setText, rate, span, count, sheet, term, who } = SV.dom;
  const { Stage, tokenNodes, titleOf, knobsOf } = SV.stage;
  const CELLS = 14;

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
        el("span", null, this.a, " tokens"),
        (this.sep = el("span", { class: "sep" })),
        el(
          "span",
          null,
          (this.term = term("accepted_length", "accepted length")),
          " ",
          this.b,
          (this.bLabel = el("em")),
        ),
      );
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
        el("div", { class: "id" }, this.pick, this.rate, this.per),
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
      this.board.inspector.raise();
      const lane = this.lane,
        cell = t.closest("[data-cell]");
      if (t.dataset.i) {
        const tok = lane.tokens[Number(t.dataset.i)];
        if (tok) this.board.selectNode(this.id, tok.round, tok.node);
      } else if (cell)
        this.board.selectNode(this.id, Number(cell.dataset.cell), t.dataset.node ? Number(t.dataset.node) : null);
      else if (t.dataset.node) this.board.selectNode(this.id, this.view.k, Number(t.dataset.node), true);
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
      this.lane = lane;
      const n = SV.fold.upto(lane, view.k),
        r = lane.rounds[view.k - 1],
        next = lane.rounds[view.k];
      const from = view.phase ? n : r && r.upto ? r.first : n;
      const falling = view.motion && view.phase === 3 && old.phase === 2 ? this.positions() : null;
      const grew = old.n !== n || old.phase !== view.phase || old.lane !== lane;
      this.stage.paint(lane, n, from, {
        round: view.phase ? next : null,
        phase: view.phase,
        motion: view.motion,
        land: view.motion,
        sel: this.selected(lane, view, from, n),
        ended: Boolean(lane.done && view.k >= lane.committed),
        few: view.race && view.live,
        marks: view.marks,
      });
      Object.assign(view, { n, lane });
      this.paintRail(lane, view);
      this.paintWords(lane, view);
      if (view.race) this.paintTrack(lane, view);
      this.filter(view.filter);
      if (falling) this.drop(falling);
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
      setText(
        this.b,
        view.race ? String(m.passes) : m.block_efficiency === null ? "\u2013" : m.block_efficiency.toFixed(2),
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
      this.term.hidden = Boolean(view.race || view.base);
      setText(this.sep, view.race ? "" : ", ");
      const s = SV.fold.sumAt(lane, view.k),
        why =
          lane.error && view.k >= lane.committed
            ? SV.text.joined(SV.text.visible(String(lane.error.why || "This method failed."))).slice(0, 240)
            : "";
      setText(this.fault, why);
      this.fault.hidden = !why;
      this.cells.hidden = Boolean(why);
      setText(this.lost, base ? "" : s.rejected + " rejected, " + s.skipped + " never examined");
    }

    /* One cell a round; only the newest few, because older ones scroll out of sight anyway. */
    paintRail(lane, view) {
      const judged = view.phase >= 3 ? view.k + 1 : view.k;
      const sel = view.sel && view.sel.lane === this.id ? view.sel : null;
      const key = [who(lane), judged, view.phase >= 3, view.width, sel && sel.round + ":" + sel.node, view.race].join();
      if (key === this.keys.rail) return;
      this.keys.rail = key;
      const cells = [],
        room = (view.width || 600) - 16,
        old = this.keys.cellsOf === lane ? this.kept : new Map();
      let used = 0;
      this.kept = new Map();
      this.keys.cellsOf = lane;
      for (let i = judged - 1; i >= 0 && used < room && cells.length < CELLS && judged - i < 200; i--) {
        const r = lane.rounds[i],
          mark = sel && sel.round === i ? sel.node : null,
          had = old.get(i),
          now = i === judged - 1;
        const c =
          had && had.sealed && had.mark === mark ? had : { mark, sealed: Boolean(r.commit), ...cellOf(lane, r, mark) };
        this.kept.set(i, c);
        if (!c.cell) continue;
        if (c.now !== now) {
          c.now = now;
          c.cell.classList.toggle("now", now);
        }
        cells.unshift(c.cell);
        used += c.w + 20;
      }
      if (!cells.length)
        cells.push(
          el(
            "span",
            { class: "none" },
            SV.metrics.isBaseline(lane) ? "Nothing is drafted, so nothing is rejected." : "Rejected tokens land here.",
          ),
        );
      for (const gone of [...this.cells.children]) if (!cells.includes(gone)) gone.remove();
      cells.forEach((cell, i) => {
        if (this.cells.children[i] !== cell) this.cells.insertBefore(cell, this.cells.children[i] || null);
      });
      this.cells.classList.toggle("few", used <= room);
      this.cells.classList.toggle("over", used > room);
    }

    /* The fall: a copy of each refused token travels from its place in the text down to the rail. */
    positions() {
      const at = new Map();
      for (const s of this.stage.next.querySelectorAll("[data-node]"))
        at.set(s.dataset.node, s.getBoundingClientRect());
      return at;
    }
    drop(from) {
      const home = this.board.root.getBoundingClientRect(),
        k = this.board.ui.speed ? 1 / this.board.ui.speed : 0.05;
      let i = 0;
      for (const to of this.cells.querySelectorAll(".cell.now [data-node]")) {
        const a = from.get(to.dataset.node),
          b = to.getBoundingClientRect(),
          ghost = to.cloneNode(true);
        const delay = (80 + 110 * i++) * k;
        if (!a) {
          to.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 260 * k, delay, fill: "backwards" });
          continue;
        }
        ghost.removeAttribute("data-node");
        ghost.classList.add("ghost");
        ghost.style.lineHeight = Math.round(a.height) + "px";
        ghost.style.left = a.left - home.left + "px";
        ghost.style.top = a.top - home.top + "px";
        this.board.root.append(ghost);
        to.style.visibility = "hidden";
        const dx = b.left - a.left,
          dy = b.top - a.top;
        const fall = ghost.animate(
          [
            { transform: "none" },
            { transform: `translate(${dx * 0.35}px, ${dy * 0.65}px)`, offset: 0.5 },
            { transform: `translate(${dx}px, ${dy}px)` },
          ],
          { duration: 520 * k, delay, fill: "both", easing: "cubic-bezier(.4,0,.2,1)" },
        );
        const end = () => {
          ghost.remove();
          to.style.visibility = "";
        };
        fall.onfinish = end;
        fall.oncancel = end;
      }
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
        for (let j = r.first; j < r.upto; j++) this.block(c, lane.tokens[j].v, j * unit, unit, j === r.upto - 1);
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
      for (const t of this.root.querySelectorAll(".t")) t.classList.toggle("dim", Boolean(f) && t.dataset.v !== f);
      this.stage.old.classList.toggle("dim", Boolean(f));
    }
  }

  /* What a round lost, and how wide that is; kept between paintings, for the rounds behind the newest do not change. */
  function cellOf(lane, r, sel) {
    const gone = r.nodes.filter((n) => !n.probe && SV.fold.verdictOf(r, n.id) !== "acc");
    if (!gone.length) return { cell: null, w: 0 };
    const tree = r.kind === "tree";
    const list = (tree ? gone.filter((n) => SV.fold.verdictOf(r, n.id) === "rej") : gone).slice(0, 8);
    const cell = el("div", { class: "cell", "data-cell": r.i }, el("em", null, String(r.i + 1)));
    let w = 16; /* an estimate is enough to know whether the row is full, and asks for no layout */
    for (const n of list) {
      const v = SV.fold.verdictOf(r, n.id),
        label = SV.fold.label(lane, n.tok);
      w += 8 + Array.from(label).length * 7.9;
      cell.append(
        el(
          "bdi",
          null,
          el(
            "span",
            { class: "t " + v + (sel === n.id ? " sel" : ""), "data-v": SV.stage.SAYS[v], "data-node": n.id },
            label,
          ),
        ),
      );
    }
    const rest = gone.length - list.length;
    if (rest) {
      cell.append(el("em", null, "+" + rest + (tree ? " unexamined" : "")));
      w += tree ? 96 : 28;
    }
    return { cell, w };
  }

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

  SV.lane = { Lane, statusOf };
})();
