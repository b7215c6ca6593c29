/* The passes: a strip a lane, where one place in the text has one width in all of them. A block is a pass of the large model, as
   wide as the tokens it gave: fewer, wider blocks are fewer passes. In Watch the open lane's strip is the scrubber. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText, setAttr, sheet, span, rate, who } = SV.dom;
  const M = SV.metrics,
    PAD = 4 /* room for the ring around the current pass */,
    EVERY = 240; /* ms between two drawings of a run in flight */

  /* Places in the text that one strip holds: what was written, or what a run in flight may still write. */
  function scaleOf(lanes) {
    return Math.max(
      1,
      ...lanes.map((l) => {
        const n = SV.fold.sumAt(l, l.committed).tokens,
          asked = (l.header && Math.min(2000, l.header.max_new_tokens)) || 0;
        return l.done || l.error ? n : Math.max(n, asked, 40 * 2 ** Math.ceil(Math.log2(Math.max(1, n / 40))));
      }),
    );
  }

  /* A round that the small model wrote alone. */
  const small = (r) => r.why === "small";

  /* One strip on a canvas of w by h; k rounds are reached, now is the round in view (or -1), n the places in all; even: the
     tokens
     from which a round pays, or null: blocks that gave fewer are marked below. */
  function draw(c, p, lane, { k, now, n, w, h, even = null }) {
    if (w < 8 * PAD) return; /* not laid out yet */
    const unit = (w - 2 * PAD) / n,
      top = PAD,
      tall = h - 2 * PAD,
      base = M.isBaseline(lane);
    for (let i = 0; i < lane.committed; i++) {
      const r = lane.rounds[i];
      if (r.upto <= r.first) continue;
      const x = PAD + r.first * unit,
        wide = (r.upto - r.first) * unit,
        gap = unit > 5 ? 2 : unit > 2 ? 1 : Math.min(0.6, wide * 0.3);
      c.save();
      c.globalAlpha = i < k || i === now ? 1 : 0.24;
      c.beginPath();
      c.roundRect(x, top, Math.max(0.6, wide - gap), tall, Math.min(3, wide / 3));
      c.clip();
      for (let j = r.first; j < r.upto; j++) {
        const left = x + (j - r.first) * unit,
          room = unit - (j === r.upto - 1 ? gap : 0);
        segment(c, p, base ? "pla" : small(r) ? "cor" : lane.tokens[j].v, left, top, room, tall, j > r.first);
        if (!SV.grammarView.forced(r, lane.tokens[j].node ?? "tail")) continue;
        c.fillStyle = p.ink; /* the grammar left no choice: a foot below its verdict's colour */
        c.fillRect(left, top + tall - 4, Math.max(0.5, room), 4);
      }
      c.restore();
      if (even !== null && r.upto - r.first < even) {
        c.fillStyle = p.ink3;
        c.fillRect(x, top + tall + 1.5, Math.max(0.6, wide - gap), 1.5);
      }
    }
    const at = now >= 0 ? lane.rounds[now] : null;
    if (!at || !(at.upto > at.first)) return;
    c.strokeStyle = p.ink;
    c.lineWidth = 2;
    c.beginPath();
    c.roundRect(PAD + at.first * unit - 2, top - 2, (at.upto - at.first) * unit + (unit > 5 ? 2 : 3), tall + 4, 5);
    c.stroke();
  }
  function segment(c, p, v, x, y, w, h, inner) {
    if (v === "cor" && w > 3) {
      c.strokeStyle = p.cor;
      c.lineWidth = 1.5;
      c.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5);
      return;
    }
    c.fillStyle = { acc: p.acc, cor: p.cor, bon: p.bon }[v] || p.ink3;
    c.fillRect(x, y, Math.max(0.5, w), h);
    if (v === "acc" && inner && w > 4) {
      c.fillStyle = p.surface;
      c.fillRect(x, y, 0.75, h);
    }
    if (v === "bon" && w > 6) {
      c.fillStyle = p.surface;
      c.beginPath();
      c.arc(x + w / 2, y + h / 2, 2, 0, 7);
      c.fill();
    }
  }

  /* What a block is: a round. With most methods that is one pass of the large model; some take several a round, and where the
     small model paints whole scales there is none. */
  const block = (lanes) => {
    const any = (what) => lanes.some((l) => l.rounds.some(what));
    return SV.messages.say(
      any(small) ? "passes.block.small" : any((r) => r.passes > 1) ? "passes.block.several" : "passes.block",
    );
  };

  /* The knobs of a lane, the draft length by its name and by the field's letter. */
  const knobs = (lane) => SV.stage.knobsOf(lane.header).replace(/\bgamma\b/, "draft length (gamma)");

  /* The tokens from which a round of this lane pays, or null. */
  const evenOf = (lane, base) => SV.price.of(lane, base)?.even ?? null;

  class Row {
    constructor(own) {
      this.name = el("b");
      this.small = el("small");
      this.n = el("b");
      this.word = el("span");
      this.speed = el("span", { class: "speed" });
      this.time = el("span", { class: "time" });
      this.canvas = own ? null : el("canvas", { "aria-hidden": "true" });
      this.box = own || el("div", { class: "pstrip" }, this.canvas);
      this.root = el(
        "div",
        { class: "prow" },
        el("div", { class: "plab" }, this.name, this.small),
        this.box,
        el(
          "div",
          { class: "pfig" },
          el("span", { class: "pn" }, this.n, this.word),
          el("small", null, this.speed, this.time),
        ),
      );
    }
    say(lane, m) {
      setText(this.name, SV.stage.titleOf(lane));
      setText(
        this.small,
        lane.error
          ? "failed"
          : M.isBaseline(lane)
            ? SV.messages.say(SV.output.of(lane).grids ? "plain.scale" : "plain.token")
            : SV.serverFacts.is(lane)
              ? "a block is a message"
              : knobs(lane),
      );
      setAttr(
        this.small,
        "title",
        SV.stage.knobsOf(lane.header).includes("gamma") ? SV.messages.say("knob.gamma") : "",
      );
      setText(this.n, String(m.passes ?? "\u2013"));
      setText(this.word, m.passes === 1 ? " pass" : " passes");
      setText(this.speed, m.tokens_per_second === null ? "" : rate(m.tokens_per_second) + " tok/s");
      setText(this.time, m.seconds > 0 ? span(m.seconds) : "");
    }
  }

  class Passes {
    constructor(board) {
      this.board = board;
      this.rows = new Map();
      this.open = new Row(board.transport.scrub);
      this.open.root.classList.add("open");
      this.list = el("div", { class: "prows" });
      this.axis = el(
        "div",
        { class: "paxis", "aria-hidden": "true" },
        (this.start = el("span")),
        (this.mid = el("span", { class: "mid" })),
        (this.end = el("span")),
      );
      this.root = el(
        "section",
        { class: "panel passes", "aria-label": "Passes of the large model" },
        this.list,
        this.axis,
        board.ledger.notes,
        board.transport.root,
        board.legend,
      );
      this.list.addEventListener("click", (e) => this.clicked(e));
      this.last = 0;
    }
    /* v: {views, race, focus, base, runs, scale, theme, width, moving, fresh, round}: plain decoding stands above the
       open lane. */
    paint(v) {
      const { focus, base, race } = v;
      this.root.classList.toggle("none", !focus);
      const above = race ? v.views.slice(0, SV.dom.LANES) : v.views.filter((x) => x.lane === base && base !== focus);
      const key = [
        v.width,
        v.theme,
        v.scale,
        race,
        who(focus),
        v.round,
        ...v.views.map(
          (x) =>
            who(x.lane) +
            ":" +
            x.k +
            ":" +
            x.lane.committed +
            x.lane.rounds.length +
            SV.stage.titleOf(x.lane) +
            Boolean(x.lane.done),
        ),
      ].join();
      if (key === this.key) return;
      /* The counts are those of the headline in the same frame; only the blocks are drawn less often. */
      for (const x of above) this.row(x.lane.id).say(x.lane, M.of(x.lane, x.lane.committed, base, v.runs));
      if (focus && !race) this.open.say(focus, M.of(focus, focus.committed, base, v.runs));
      if (v.moving && !v.fresh && performance.now() - this.last < EVERY) {
        this.timer ??= setTimeout(() => {
          this.timer = null;
          this.board.soon();
        }, EVERY);
        return;
      }
      this.key = key;
      this.last = performance.now();
      const ids = above.map((x) => x.lane.id);
      for (const [id, row] of this.rows)
        if (!ids.includes(id)) {
          row.root.remove();
          this.rows.delete(id);
        }
      this.shown = above;
      above.forEach((x, i) => {
        const row = this.row(x.lane.id);
        row.root.dataset.strip = x.lane.id;
        if (this.list.children[i] !== row.root) this.list.insertBefore(row.root, this.list.children[i] || null);
        row.root.classList.toggle("focus", race && x.lane === focus);
        const c = sheet(row.canvas, v.width, this.board.strip);
        draw(c, this.board.colors, x.lane, {
          k: x.k,
          now: -1,
          n: v.scale,
          w: v.width,
          h: this.board.strip,
          even: evenOf(x.lane, base),
        });
      });
      if (this.list.lastChild !== this.open.root) this.list.append(this.open.root);
      if (!focus || race)
        for (const part of ["name", "small", "n", "word", "speed", "time"]) setText(this.open[part], "");
      if (race) setText(this.open.small, "one clock for all lanes");
      setText(
        this.start,
        SV.messages.say(
          v.views.some((x) => SV.output.of(x.lane).side > 0) ? "passes.start.picture" : "passes.start.text",
        ),
      );
      this.axis.classList.toggle("bare", !v.views.length);
      const marked = v.views.some((x) => (x.lane === focus || race) && evenOf(x.lane, base) !== null);
      setText(this.mid, block(v.views.map((x) => x.lane)) + (marked ? SV.messages.say("passes.even") : ""));
      setText(this.end, v.views.every((x) => x.lane.done) ? "end" : "");
    }
    row(id) {
      if (!this.rows.has(id)) this.rows.set(id, new Row(null));
      return this.rows.get(id);
    }
    clicked(e) {
      const row = e.target.closest("[data-strip]"),
        x = row && this.shown.find((s) => s.lane.id === Number(row.dataset.strip));
      if (!x) return;
      const box = row.querySelector("canvas").getBoundingClientRect(),
        i = Math.floor(((e.clientX - box.left - PAD) / Math.max(1, box.width - 2 * PAD)) * this.board.scale),
        t = x.lane.tokens[i];
      if (!t) return this.board.focusLane(x.lane.id);
      if (this.board.race()) this.board.focusLane(x.lane.id);
      this.board.seekTime((SV.fold.endOf(x.lane, t.round) ?? 0) + 1e-9);
    }
  }

  SV.passes = { evenOf, block, Passes, scaleOf, draw, PAD };
})();
