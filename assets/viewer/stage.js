/* One lane of the stage: coloured tokens, kept between paints. Committed tokens are appended once and then left alone;
   text older than KEEP tokens folds into one plain run, so a lane of any length holds a bounded number of nodes;
   while a race streams, only the few that can be seen are coloured. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setAttr, parts } = SV.dom;
  const { tokenNodes, ownBytes, askTokens } = SV.tokens;
  const KEEP = 320,
    FEW = 96,
    CHUNK = 32;

  /* Values of knobs whose name in the interface is not a reader's word. */
  const PLAIN = { distribution: "whole distribution" };
  const TRAINED = "nodes"; /* 0 of them stands for as many as the heads were calibrated for */
  const plain = (value, name = "") =>
    name === TRAINED && value === 0
      ? "as trained"
      : typeof value === "string" && Object.hasOwn(PLAIN, value)
        ? PLAIN[value]
        : value;

  function knobsOf(header) {
    const k = (header && header.knobs) || {};
    return Object.entries(k)
      .slice(0, 4)
      .map(
        ([name, v]) => name.replaceAll("_", " ") + " " + (typeof v === "object" ? JSON.stringify(v) : plain(v, name)),
      )
      .join(", ")
      .slice(0, 80);
  }
  const titleOf = (lane) =>
    String(
      (lane.header && lane.header.method && (lane.header.method.title || lane.header.method.key)) ||
        "Lane " + (lane.id + 1),
    );

  class Stage {
    constructor() {
      this.turns = el("span", { class: "turns" });
      this.ask = el("span", { class: "ask" });
      this.old = el("span", { class: "old", title: "Older text, uncoloured here. Scrub back to see its verdicts." });
      this.now = el("span", { class: "live" });
      this.next = el("span", { class: "next" });
      this.caret = el("span", { class: "caret" });
      this.rest = el("span", { class: "rest", "aria-hidden": "true" });
      this.text = el("span", { class: "text", dir: "auto" }, this.old, this.now, this.next, this.caret, this.rest);
      this.whole = el("canvas", { class: "whole", hidden: true, role: "img", "aria-label": "The picture so far" });
      this.seen = el("figure", { class: "seen", hidden: true });
      this.page = el("div", { class: "page" }, this.turns, this.seen, this.ask, this.text, this.whole);
      this.box = el("div", { class: "stage", tabindex: 0, role: "group" }, this.page);
      this.up = false;
      this.box.addEventListener(
        "scroll",
        () => {
          this.up = this.box.scrollTop < -1;
        },
        { passive: true },
      );
      this.arcs = new SV.arcs.Arcs(this);
      this.clear();
    }

    clear() {
      this.now.replaceChildren();
      this.old.replaceChildren();
      this.scales = [];
      this.nodes = [];
      this.lo = 0;
      this.hi = 0;
      this.epoch = null;
      this.nextKey = "";
      this.restKey = -1;
      this.rest.textContent = "";
    }

    header(lane) {
      if (this.epoch === lane) return;
      this.clear();
      this.epoch = lane;
      this.grid = SV.output.of(lane);
      this.text.classList.toggle("patches", this.grid.columns > 0);
      this.text.style.gridTemplateColumns = this.grid.columns ? `repeat(${this.grid.columns}, var(--sv-patch))` : "";
      this.text.style.gridTemplateRows = this.grid.columns ? `repeat(${this.grid.rows}, var(--sv-patch))` : "";
      this.text.classList.toggle("scales", Boolean(this.grid.grids));
      this.whole.hidden = !this.grid.columns;
      this.wholeKey = -1;
      this.before(lane);
      const p = (lane.header && lane.header.prompt) || {};
      const turns = Array.isArray(p.turns) ? p.turns.slice(-20) : [];
      this.turns.replaceChildren(
        ...turns.map((t) =>
          el(
            "span",
            { class: "turn", dir: "auto" },
            el("b", null, String(t.role || "")),
            ...parts(SV.text.visible(String(t.text ?? t.content ?? ""))),
          ),
        ),
      );
      this.ask.replaceChildren(...(askTokens(lane, p) || parts(SV.text.visible(String(p.text || "")))));
      setAttr(this.box, "aria-label", "Text of " + titleOf(lane));
    }

    /* Shows tokens [.., upto), the round [from, upto) lit, and the drafted ones not judged yet. */
    paint(lane, upto, from, opts) {
      if (Boolean(opts.marks) !== Boolean(this.marks)) {
        this.marks = Boolean(opts.marks);
        this.rewind();
        this.nextKey = "";
      }
      this.header(lane);
      this.lane = lane;
      const want = this.grid.side ? 0 : Math.max(0, Math.ceil((upto - (opts.few ? FEW : KEEP)) / CHUNK) * CHUNK);
      if (want < this.lo) this.rewind();
      while (this.hi > upto) this.pop();
      if (!opts.land && this.landing) {
        /* who jumps on does not wait for words that were still to appear */
        for (const s of this.now.querySelectorAll(".land")) s.classList.remove("land");
        this.landing = false;
      }
      this.fold(lane, want);
      while (this.hi < upto)
        this.push(lane.tokens[this.hi], opts.land && this.hi >= from ? (this.hi - from) * 60 : null);
      this.light(from, upto);
      this.select(opts.sel);
      this.pending(lane, upto, opts);
      this.picture(lane, upto);
      this.caret.hidden = opts.ended;
      this.coming(lane, upto, opts);
    }
    /* The picture that the target read before the prompt, or that was hidden from it. */
    before(lane) {
      const seen = lane.header && lane.header.picture;
      this.seen.hidden = !seen;
      if (!seen) return;
      const words = SV.messages.say(seen.hidden ? "picture.hidden" : "picture.seen");
      this.seen.classList.toggle("unseen", seen.hidden);
      this.seen.replaceChildren(el("img", { src: seen.src, alt: words }), el("figcaption", null, words));
    }
    /* A picture stands beside its patches a second time, without their verdicts. */
    picture(lane, upto) {
      if (!this.grid.side || this.wholeKey === upto) return;
      this.wholeKey = upto;
      if (this.grid.grids) return this.grow(lane, upto);
      SV.dom.pixels(SV.output.painted(lane, upto), this.grid.columns, this.grid.rows, this.whole);
    }
    /* Scales stand side by side: the picture after each of them, under the frames of its patches. */
    grow(lane, upto) {
      const pictures = SV.output.growing(lane, upto);
      for (const gone of this.scales.splice(pictures.length)) gone.box.remove();
      pictures.forEach((one, k) => SV.dom.paintSquare(one, this.scales[k].canvas));
    }
    /* The box of a token's scale. */
    scaleBox(t) {
      const { scale } = SV.output.scaleOf(this.grid.grids, t.i);
      while (this.scales.length <= scale) {
        const grid = this.grid.grids[this.scales.length],
          small = this.lane.rounds[t.round].why === "small",
          canvas = el("canvas", { "aria-hidden": "true" }),
          cells = el("span", { class: "cells", css: { gridTemplateColumns: `repeat(${grid}, 1fr)` } }),
          words = SV.messages.say(small ? "scale.small" : "scale.large"),
          box = el(
            "span",
            { class: "scale" + (small ? " small" : "") },
            el("span", { class: "sheet" }, canvas, cells),
            el("span", { class: "cap" }, el("b", null, grid + " \u00d7 " + grid), el("em", null, words)),
          );
        this.scales.push({ box, canvas, cells });
        this.now.append(box);
      }
      return this.scales[scale].cells;
    }
    /* What a finished run goes on to write stands there already, pale: nothing moves when it comes. */
    coming(lane, upto, opts) {
      const guessed = this.next.querySelectorAll(".t").length /* what is guessed stands in its place */,
        word = (i) => SV.text.joined(lane.tokens[i].parts);
      let from = upto + guessed; /* the rest of a word that a guess cut in two would read as a part of the guess */
      for (let i = 0; guessed && i < 4 && from < lane.tokens.length && /^[\p{L}\p{N}]/u.test(word(from)); i++) from++;
      const show = opts.coming && !this.grid.side && from < lane.tokens.length,
        key = show ? from : -1;
      this.rest.classList.toggle("behind", guessed > 0); /* else it reads as if the guess went on with it */
      if (key === this.restKey) return;
      this.restKey = key;
      const text = show
        ? Array.from({ length: Math.min(600, lane.tokens.length - from) }, (_, i) => word(from + i)).join("")
        : "";
      if (this.rest.textContent !== text) this.rest.textContent = text;
    }

    rewind() {
      this.now.replaceChildren();
      this.scales = [];
      this.wholeKey = -1;
      this.nodes = [];
      this.lo = 0;
      this.hi = 0;
      this.old.replaceChildren();
    }
    fold(lane, want) {
      if (want <= this.lo) return;
      const add = [],
        first = this.nodes[this.lo],
        last = this.nodes[Math.min(want, this.hi) - 1];
      if (first && last) {
        /* all that leaves in one go */
        const gone = document.createRange();
        gone.setStartBefore(first[0]);
        gone.setEndAfter(last[last.length - 1]);
        gone.deleteContents();
      }
      for (let i = this.lo; i < want; i++) {
        add.push(SV.text.joined(lane.tokens[i].parts));
        this.nodes[i] = null;
      }
      this.old.append(add.join(""));
      if (this.old.childNodes.length > 16) this.old.normalize();
      this.lo = want;
      this.hi = Math.max(this.hi, want);
    }
    push(t, delay) {
      const set = tokenNodes(this.marks ? { ...t, own: ownBytes(this.lane, t) } : t, t.v, this.marks);
      if (delay !== null) {
        const s = set[set.length - 1];
        s.classList.add("land");
        this.landing = true;
        s.style.animationDelay = "calc(" + delay + "ms * var(--sv-k))";
      }
      if (SV.grammarView.forced(this.lane.rounds[t.round], t.node ?? "tail")) set[set.length - 1].dataset.forced = "";
      (this.grid.grids ? this.scaleBox(t) : this.now).append(...set);
      this.nodes[this.hi] = set;
      this.hi++;
    }
    pop() {
      this.hi--;
      const set = this.nodes[this.hi];
      if (set) for (const n of set) n.remove();
      this.nodes.length = this.hi;
      if (this.lit) this.lit = this.lit.filter((i) => i < this.hi);
    }
    span(i) {
      const set = this.nodes[i];
      return set ? set[set.length - 1] : null;
    }
    light(from, upto) {
      for (const i of this.lit || []) if (i < from || i >= upto) this.span(i)?.classList.remove("now");
      this.lit = [];
      for (let i = Math.max(from, this.lo); i < upto; i++) {
        this.span(i)?.classList.add("now");
        this.lit.push(i);
      }
    }
    select(i) {
      const s = i === null || i === undefined ? null : this.span(i);
      if (this.chosen !== s) {
        this.chosen?.classList.remove("sel");
        s?.classList.add("sel");
        this.chosen = s;
      }
    }

    /* Drafted tokens stand after the text, grey and dotted; open bytes at the very end are chips. */
    pending(lane, upto, { round, phase, motion }) {
      const last = lane.tokens[upto - 1],
        open = last && last.carry ? last.carry : [];
      const path = !round || !phase ? [] : phase < 3 ? firstPath(round) : kept(round);
      const key = (this.marks ? "m" : open.join()) + "|" + (round ? round.i : "") + "|" + phase + "|" + path.length;
      if (key === this.nextKey) return;
      this.nextKey = key;
      const kids =
        open.length && !this.marks ? [el("span", { class: "chip" }, SV.text.joined(open.map(SV.text.byteChip)))] : [];
      path.forEach((n, i) => {
        const raw = SV.output.alone(lane, n.tok);
        const v = SV.fold.verdictOf(round, n.id, phase);
        const set = tokenNodes({ parts: raw, i: "", special: lane.special.has(n.tok) }, v, this.marks);
        const s = set[set.length - 1];
        if (v === "acc") s.classList.add("now");
        s.dataset.node = n.id;
        if (SV.grammarView.forced(round, n.id)) s.dataset.forced = "";
        if (motion && phase < 3) {
          s.classList.add(phase === 1 ? "drafted" : "scan");
          s.style.animationDelay = "calc(" + i * 70 + "ms * var(--sv-k))";
        }
        kids.push(...set);
      });
      this.next.replaceChildren(...kids);
    }

    /* The box is anchored at its bottom by style, so the newest text stays in sight without a question to the page. Only who has
       scrolled up by hand is brought back, and not while a run streams: then he is reading. */
    follow() {
      if (this.rest.textContent) {
        /* the place in the text, not its end */
        const at = this.caret.getBoundingClientRect(),
          box = this.box.getBoundingClientRect();
        if (at.height && at.top < box.top + 8) this.box.scrollTop -= box.top + 40 - at.top;
        else if (at.height && at.bottom > box.bottom - 8) this.box.scrollTop += at.bottom - box.bottom + 40;
      } else if (this.up) {
        this.up = false;
        this.box.scrollTop = 0;
      }
    }
  }

  /* The draft's own first guess: the first child all the way down; what a reader would have seen next. */
  function firstPath(r) {
    const out = [];
    const real = (id) => r.nodes[id] && !r.nodes[id].probe;
    let at = r.nodes.find((n) => n.parent === -1 && !n.probe);
    while (at && out.length < 64) {
      out.push(at);
      at = r.nodes[at.kids.find(real)];
    }
    return out;
  }

  const kept = (r) =>
    r.commit ? r.path.map((id) => r.nodes[id]) : r.nodes.filter((n) => SV.fold.verdictOf(r, n.id, 3) === "acc");

  SV.stage = { Stage, titleOf, knobsOf, firstPath, plain, PLAIN };
})();
