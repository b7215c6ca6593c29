/* The attention mask of the one target pass, a row a drafted token, and what the pass left in the key-value cache. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, svg, count } = SV.dom;
  const MOST = 256,
    CELLS = 96;

  /* The node itself and what is above it, nearest first. */
  function line(r, id) {
    const out = [];
    for (let k = id; k >= 0 && out.length < 4096; k = r.nodes[k].parent) out.push(k);
    return out;
  }

  function draw(v) {
    const r = v.round,
      card = el("div", { class: "card" });
    if (!r || !r.nodes.length)
      card.append(el("p", { class: "prose1" }, "One row, plain causal mask: the token sees everything before it."));
    else card.append(...grid(v));
    card.append(cache(v));
    return card;
  }

  function grid(v) {
    const r = v.round,
      nodes = r.nodes.slice(0, MOST),
      n = nodes.length,
      available = Math.max(120, (v.inner || 420) - 132);
    const c = Math.max(3, Math.min(18, Math.floor(available / (n + 2)))),
      L = c >= 9 ? 112 : 8,
      g1 = c > 5 ? c - 1 : c,
      W = L + (n + 2) * c,
      H = n * c + 2,
      id = "svm" + n + "x" + c;
    const S = svg("svg", {
      class: "mask",
      width: W,
      height: H,
      viewBox: `0 0 ${W} ${H}`,
      role: "group",
      "aria-label": "Which drafted token sees which in the one target pass",
    });
    S.append(
      svg(
        "defs",
        null,
        svg(
          "pattern",
          { id, x: L, y: 0, width: c, height: c, patternUnits: "userSpaceOnUse" },
          svg("rect", { class: "un", width: c - 1, height: c - 1 }),
        ),
      ),
      svg("rect", { x: L + 2 * c, y: 0, width: n * c, height: n * c, fill: `url(#${id})` }),
    );
    for (const a of nodes) {
      const cls = SV.fold.verdictOf(r, a.id, v.phase),
        y = a.id * c,
        d = line(r, a.id)
          .map((j) => `M${L + c * (j + 2)} ${y}h${g1}v${g1}h${-g1}z`)
          .join("");
      const g = svg("g", { class: "mrow " + cls + (a.id === v.sel ? " sel" : ""), "data-node": a.id });
      g.append(
        svg("rect", { class: "band", x: 0, y: y - 0.5, width: W, height: c }),
        svg("rect", { class: "past", x: L, y, width: c * 2 - 2, height: c - 1 }),
        svg("path", { class: "sees", d }),
      );
      if (c >= 9)
        g.append(
          svg(
            "text",
            {
              x: L - 8,
              y: y + c - Math.max(2, c / 4),
              "text-anchor": "end",
              css: { "font-size": Math.min(12, c - 1) + "px" },
            },
            SV.fold.label(v.lane, a.tok, 13),
          ),
        );
      S.append(g);
    }
    const say = el("p", { class: "note said" }, what(v, typeof v.sel === "number" ? v.sel : null));
    return [el("div", { class: "maskbox", tabindex: 0, role: "group", "aria-label": "Attention mask" }, S), say];
  }

  /* One row in words; without a row, how to read the picture. */
  function what(v, id) {
    const r = v.round;
    if (id === null || !r.nodes[id])
      return (
        "Rows read columns. Each drafted token sees the committed text (the bar at the left), what it hangs " +
        "below, and itself, so one target pass scores every branch at once." +
        (r.nodes.length > MOST ? " The first " + MOST + " of " + r.nodes.length + " are drawn." : "")
      );
    const up = line(r, id)
      .slice(1)
      .reverse()
      .map((j) => SV.fold.label(v.lane, r.nodes[j].tok, 14));
    return [
      "Row " + (id + 1) + ", ",
      el("bdi", { class: "mono" }, SV.fold.label(v.lane, r.nodes[id].tok, 14)),
      ", sees the committed text, ",
      up.length ? [el("bdi", { class: "mono" }, up.slice(-8).join(" ")), " and itself: "] : "and itself: ",
      count(up.length + 1, "drafted token") + " of " + r.nodes.length + ".",
    ].flat();
  }

  /* The cache as a strip: what was there, the rows this pass added, and which of them stayed. */
  function cache(v) {
    const r = v.round,
      kv = r && r.commit && v.phase >= 4 ? r.commit.kv : null,
      box = el("div", { class: "cachebox" }, el("b", null, "Key-value cache"));
    if (!kv) {
      box.append(el("p", { class: "note" }, "It is decided when the round commits."));
      return box;
    }
    const cells = [el("i", { class: "kroot", title: "the last committed token" })];
    for (const n of r.nodes.slice(0, CELLS))
      cells.push(
        el("i", {
          class: r.path.includes(n.id) ? "kept" : "gone",
          "data-node": n.id,
          title: SV.fold.label(v.lane, n.tok) + (r.path.includes(n.id) ? ": kept" : ": dropped"),
        }),
      );
    const more = r.nodes.length - CELLS;
    box.append(
      el(
        "div",
        { class: "kvrow" },
        el("span", { class: "old1" }, kv.before + " rows before"),
        el("span", { class: "new1" }, cells, more > 0 ? el("em", null, "+" + more) : ""),
      ),
      el(
        "p",
        { class: "note" },
        count(kv.before, "row") +
          " before, " +
          count(r.nodes.length + 1, "row") +
          " in the pass (the last committed token and the draft), " +
          (kv.dropped ? count(kv.dropped, "row") + " of rejected tokens dropped" : "nothing dropped") +
          ": " +
          kv.after +
          " after.",
      ),
    );
    return box;
  }

  SV.mask = { draw, what };
})();
