/* One lane of the stage: coloured tokens, kept between paints. Committed tokens are appended once and then left alone;
   text older than KEEP tokens folds into one plain run, so a lane of any length holds a bounded number of nodes; while a race streams, only the few that can be seen are coloured. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { el, setText, setAttr, parts } = SV.dom;
  const KEEP = 320,
    FEW = 96,
    CHUNK = 32;
  const SAYS = {
    acc: "accepted",
    cor: "correction",
    bon: "bonus",
    pla: "plain",
    dra: "drafted",
    rej: "rejected",
    ski: "never examined",
  };

  function knobsOf(header) {
    const k = (header && header.knobs) || {};
    return Object.entries(k)
      .slice(0, 4)
      .map(([name, v]) => name + " " + (typeof v === "object" ? JSON.stringify(v) : v))
      .join(", ")
      .slice(0, 80);
  }
  const titleOf = (lane) =>
    String(
      (lane.header && lane.header.method && (lane.header.method.title || lane.header.method.key)) ||
        "Lane " + (lane.id + 1),
    );

  /* The token's text outside the underline is its leading space: a text node before the span. */
  function tokenNodes(t, cls, marks) {
    const list = t.parts.slice();
    let lead = "";
    if (marks) return [whole(t, cls, list)];
    if (typeof list[0] === "string") {
      lead = /^ *(?=[^ \n\r\t])/.exec(list[0])?.[0] ?? "";
      if (lead) list[0] = list[0].slice(lead.length);
    }
    const body = list.map((p) => (typeof p === "string" ? p : p.c)).join("");
    const extra = (/\n/.test(body) ? " nl" : "") + (t.special ? " eos" : "") + (!body && t.carry ? " part" : "");
    const span = el("span", { class: "t " + cls + extra, "data-v": SAYS[cls], "data-i": t.i }, parts(list));
    if (t.special && !body) span.append("\u25a0 end");
    return lead ? [document.createTextNode(lead), span] : [span];
  }

  /* With marks on, the leading space belongs to the token's span, every blank shows a glyph that is no text, and a token that
     ends inside a character shows its own bytes. */
  function whole(t, cls, list) {
    const kids = list.flatMap((p) =>
      typeof p === "string"
        ? p
            .split(/( +|\t)/)
            .filter(Boolean)
            .map(blank)
        : parts([p]),
    );
    const body = list.map((p) => (typeof p === "string" ? p : p.c)).join("");
    const span = el(
      "span",
      {
        class: "t " + cls + (/\n/.test(body) ? " nl" : "") + (t.special ? " eos" : ""),
        "data-v": SAYS[cls],
        "data-i": t.i,
      },
      kids,
    );
    if (t.special && !body) span.append("\u25a0 end");
    if (t.own) span.append(el("span", { class: "chip" }, t.own.map((b) => SV.text.byteChip(b).c).join("")));
    return span;
  }
  function blank(s) {
    if (s === "\t") return el("span", { class: "ws", "data-g": "\u21e5" }, s);
    return /^ +$/.test(s)
      ? el("span", { class: "ws", "data-g": s.length > 8 ? "\u2423\u00d7" + s.length : "\u00b7".repeat(s.length) }, s)
      : s;
  }
  /* The bytes of a token that leaves a character open: from the vocabulary, for the text holds only what is complete. */
  const ownBytes = (lane, t) => (t.carry && !t.parts.length ? SV.text.bytesOf(lane.vocab.get(t.tok)) : null);

  /* The prompt as the tokens it was read as, so that a copy can point at its source: the ids whose bytes make up the last message.
     Null where they do not, as with a tokenizer that changes its input; then the prompt is one text. */
  const MOST_ASKED = 4000;
  function askTokens(lane, p) {
    const ids = p.ids || [],
      want = new TextEncoder().encode(String(p.text || ""));
    if (!ids.length || ids.length > MOST_ASKED || !want.length || !ids.every((id) => lane.vocab.has(id))) return null;
    const each = ids.map((id) => SV.text.bytesOf(lane.vocab.get(id))),
      all = each.flat(),
      at = findLast(all, want),
      out = [];
    if (at < 0) return null;
    let b = 0,
      held = [],
      first = -1;
    each.forEach((bytes, i) => {
      const part = bytes.slice(Math.max(0, at - b), Math.max(0, at + want.length - b));
      b += bytes.length;
      if (!part.length) return;
      if (first < 0) first = i;
      const { parts: shown, carry } = SV.text.decode(held.concat(part));
      held = carry;
      if (!shown.length) return;
      out.push(el("span", { "data-p": first }, parts(shown)));
      first = -1;
    });
    return held.length ? null : out;
  }
  function findLast(all, want) {
    for (let i = all.length - want.length; i >= 0; i--) {
      let k = 0;
      while (k < want.length && all[i + k] === want[k]) k++;
      if (k === want.length) return i;
    }
    return -1;
  }

  class Stage {
    constructor() {
      this.turns = el("span", { class: "turns" });
      this.ask = el("span", { class: "ask" });
      this.old = el("span", { class: "old", title: "Older text, uncoloured here. Scrub back to see its verdicts." });
      this.now = el("span", { class: "live" });
      this.next = el("span", { class: "next" });
      this.caret = el("span", { class: "caret" });
      this.text = el("span", { class: "text", dir: "auto" }, this.old, this.now, this.next, this.caret);
      this.page = el("div", { class: "page" }, this.turns, this.ask, this.text);
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
      this.nodes = [];
      this.lo = 0;
      this.hi = 0;
      this.epoch = null;
      this.nextKey = "";
    }

    header(lane) {
      if (this.epoch === lane) return;
      this.clear();
      this.epoch = lane;
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
      const want = Math.max(0, Math.ceil((upto - (opts.few ? FEW : KEEP)) / CHUNK) * CHUNK);
      if (want < this.lo) this.rewind();
      while (this.hi > upto) this.pop();
      this.fold(lane, want);
      while (this.hi < upto)
        this.push(lane.tokens[this.hi], opts.land && this.hi >= from ? (this.hi - from) * 60 : null);
      this.light(from, upto);
      this.select(opts.sel);
      this.pending(lane, upto, opts);
      this.caret.hidden = opts.ended;
    }

    rewind() {
      this.now.replaceChildren();
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
        s.style.animationDelay = "calc(" + delay + "ms * var(--sv-k))";
      }
      this.now.append(...set);
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

    /* Drafted tokens wait behind the text, grey and dotted; open bytes at the very end are chips. */
    pending(lane, upto, { round, phase, motion }) {
      const last = lane.tokens[upto - 1],
        open = last && last.carry ? last.carry : [];
      const path = !round || !phase ? [] : phase < 3 ? firstPath(round) : kept(round);
      const key = (this.marks ? "m" : open.join()) + "|" + (round ? round.i : "") + "|" + phase + "|" + path.length;
      if (key === this.nextKey) return;
      this.nextKey = key;
      const kids =
        open.length && !this.marks
          ? [el("span", { class: "chip" }, open.map((b) => SV.text.byteChip(b).c).join(""))]
          : [];
      path.forEach((n, i) => {
        const raw = SV.text.alone(SV.text.bytesOf(lane.vocab.get(n.tok)));
        const v = SV.fold.verdictOf(round, n.id, phase);
        const set = tokenNodes({ parts: raw, i: "", special: lane.special.has(n.tok) }, v, this.marks);
        const s = set[set.length - 1];
        if (v === "acc") s.classList.add("now");
        s.dataset.node = n.id;
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
      if (this.up) {
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

  SV.stage = { Stage, tokenNodes, titleOf, knobsOf, firstPath, SAYS };
})();
