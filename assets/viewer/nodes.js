/* The parts of a drawn draft: a node's box, the round's own token, the root, and how wide a label is. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { svg, f2 } = SV.dom;
  const CW = 7.25,
    SMALL = 6.7,
    HEAD = 6.1; /* widths of a character: 12 px mono, 11 px mono, 11 px sans */
  const WORD = { acc: "accepted", rej: "rejected", ski: "not examined", dra: "drafted" };
  const TAILS = {
    bonus: "\u2605 bonus",
    correction: "correction",
    plain: "plain",
    accepted: "accepted",
    unchecked: "unchecked",
    forced: "forced",
    small: "small model",
  };
  const tailClass = (why) =>
    why === "bonus" ? "bon" : why === "correction" ? "cor" : why === "accepted" ? "acc" : "pla";

  /* Columns a monospaced label takes: CJK and emoji take two. */
  const columns = (ch) =>
    /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60]|\p{Extended_Pictographic}/u.test(
      ch,
    )
      ? 2
      : 1;
  const wide = (s, cw = CW) => Array.from(s).reduce((n, ch) => n + columns(ch), 0) * cw;
  const labelWidth = (s) => s.length * HEAD;
  /* As much of a label as fits. */
  function clip(s, maxWidth, cw) {
    if (wide(s, cw) <= maxWidth) return s;
    let out = "";
    for (const ch of Array.from(s)) {
      if (wide(out + ch + "\u2026", cw) > maxWidth) break;
      out += ch;
    }
    return out + "\u2026";
  }
  const text = (x, y, s, cls, anchor) => svg("text", { x, y, class: cls, "text-anchor": anchor }, s);

  function box(x, y, w, h, opt) {
    const g = svg("g", {
      class: "node " + opt.cls + (opt.sel ? " sel" : ""),
      tabindex: -1,
      role: "button",
      "data-node": opt.id,
      "data-v": SV.tokens.VERDICT_NAMES[opt.cls],
      "aria-label": opt.label + (opt.q === null ? "" : " " + f2(opt.q) + " draft probability") + ", " + opt.say,
    });
    g.append(
      svg("rect", { class: "ring", x: x - 3, y: y - 3, width: w + 6, height: h + 6, rx: 7 }),
      svg("rect", { class: "box", x, y, width: w, height: h, rx: 4 }),
      text(x + 8, y + h / 2 + 4, opt.label, "w"),
      ...swatch(opt.patch, x + 5, y + h / 2 - 6, 13),
    );
    if (opt.q !== null) {
      const q = text(x + w - 7, y + h / 2 + 3.5, " " + f2(opt.q), "q", "end");
      g.append(q);
    }
    return g;
  }
  /* A patch's pixels over the glyph that stands for it. */
  function swatch(parts, x, y, w) {
    const p = (parts || []).find((part) => typeof part !== "string" && part.px);
    if (!p) return [];
    const d = w / p.side;
    return Array.from({ length: p.side * p.side }, (_, k) =>
      svg("rect", {
        x: x + (k % p.side) * d,
        y: y + Math.floor(k / p.side) * d,
        width: d + 0.2,
        height: d + 0.2,
        fill: `rgb(${p.px.slice(3 * k, 3 * k + 3).join()})`,
      }),
    );
  }
  const LONG = 14;
  const nodeBox = (v, n, x, y, w, h, q) => {
    const cls = SV.fold.verdictOf(v.round, n.id, v.phase);
    return box(x, y, w, h, {
      cls,
      id: n.id,
      say: WORD[cls],
      label: SV.fold.label(v.lane, n.tok, v.long || LONG),
      patch: SV.output.alone(v.lane, n.tok),
      q,
      sel: v.sel === n.id,
    });
  };
  /* Whether the round's last token needs a box of its own: an accepted one that ended the run has its node already. */
  function drawsTail(v) {
    const r = v.round,
      last = r.path.length ? r.path[r.path.length - 1] : -1;
    return r.commit && !(r.why === "accepted" && r.nodes.some((n) => n.parent === last && n.tok === r.commit.tail.tok));
  }
  function tailBox(v, x, y, h) {
    const t = v.round.commit.tail,
      label = SV.fold.label(v.lane, t.tok, v.long || LONG),
      w = wide(label) + 18,
      cls = tailClass(v.round.why);
    return {
      w,
      cls,
      g: box(x, y, w, h, {
        cls,
        id: "tail",
        say: TAILS[v.round.why] || v.round.why,
        label,
        patch: SV.output.alone(v.lane, t.tok),
        q: null,
        sel: v.sel === "tail",
      }),
    };
  }
  function root(v, x, y) {
    const prev = v.round.i
      ? (v.lane.tokens[v.round.first - 1] ?? v.lane.tokens[SV.fold.upto(v.lane, v.round.i) - 1])
      : null;
    const name = prev ? clip(SV.text.label(prev.parts, 6), x, SMALL) : "prompt";
    return [
      svg("circle", { class: "rootdot", cx: x, cy: y, r: 4 }),
      text(x + 4, y - 10, "after", "hd", "end"),
      text(x + 4, y + 20, name, "alt", "end"),
    ];
  }
  const size = (s, w, h) => {
    s.setAttribute("width", Math.ceil(w));
    s.setAttribute("height", Math.ceil(h));
    s.setAttribute("viewBox", `0 0 ${Math.ceil(w)} ${Math.ceil(h)}`);
  };

  SV.nodes = {
    SMALL,
    LONG,
    WORD,
    TAILS,
    tailClass,
    wide,
    labelWidth,
    clip,
    text,
    nodeBox,
    drawsTail,
    tailBox,
    root,
    size,
  };
})();
