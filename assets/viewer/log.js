/* The other tabs of the inspector: the log tables (also the text alternative of everything drawn), mask and cache, lens. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { el, svg, f3, span } = SV.dom;
  const WORD = { accepted: "accepted", rejected: "rejected", skipped: "not examined" };
  const ROWS = 60, NEAR = 24;

  function table(head, rows, right) {
    return el("table", null, el("thead", null, el("tr", null, head.map((t, i) => el("th", { class: right(i) ? "r" : null, scope: "col" }, t)))),
      el("tbody", null, rows.map(({ cells, ...attrs }) => el("tr", attrs, cells.map((c, i) => el("td", { class: (right(i) ? "r " : "") + (i === 1 ? "mono" : "") || null }, i === 1 ? el("bdi", null, String(c)) : String(c)))))));
  }

  function log(v) {
    const r = v.round, card = el("div", { class: "card log", tabindex: 0 });
    if (!r) return card;
    const rows = [];
    for (const id of r.tests.slice(0, ROWS)) {
      const j = r.judges.get(id), n = r.nodes[id];
      if (n && v.phase >= 3) rows.push({ "data-node": id, class: v.sel === id ? "sel" : null, cells: [n.depth, SV.fold.label(v.lane, n.tok), f3(j.p), f3(j.q), f3(j.a), f3(j.u), WORD[j.verdict]] });
    }
    const skipped = r.nodes.length - r.tests.length;
    if (r.commit && v.phase >= 4) rows.push({ "data-node": "tail", class: v.sel === "tail" ? "sel" : null, cells: ["tail", SV.fold.label(v.lane, r.commit.tail.tok), f3(r.commit.tail.p), "", "", "", SV.tree.TAILS[r.why] || r.why] });
    card.append(el("div", null, el("b", null, "This round"), skipped > 0 && v.phase >= 3 ? el("span", { class: "quiet" }, "  " + skipped + " drafted tokens were never examined") : ""), table(["depth", "token", "p", "q", "a", "u", "verdict"], rows, (i) => i > 1 && i < 6));
    card.append(el("b", null, "Rounds near it"), rounds(v));
    return card;
  }
  function rounds(v) {
    const lane = v.lane, k = Math.min(lane.committed, v.k), hi = Math.min(k, Math.max(NEAR, v.round.i + NEAR / 2)), rows = [];
    for (let i = Math.max(0, hi - NEAR); i < hi; i++) {
      const r = lane.rounds[i];
      const said = lane.tokens.slice(r.first, r.upto).map((t) => SV.text.joined(t.parts)).join("");
      rows.push({ "data-round": i, class: i === v.round.i ? "sel" : null, cells: [i + 1, SV.text.label(SV.text.visible(said), 34), r.nodes.length, r.path.length, SV.tree.TAILS[r.why] || r.why, span(SV.fold.endOf(lane, i) - SV.fold.startOf(lane, i))] });
    }
    return table(["round", "text", "drafted", "kept", "then", "engine"], rows, (i) => i === 2 || i === 3 || i === 5);
  }

  function mask(v) {
    const r = v.round, card = el("div", { class: "card" });
    if (!r || !r.nodes.length) { card.append(el("p", { class: "prose1" }, "One row, plain causal mask: the token sees everything before it."), cache(v)); return card; }
    const nodes = r.nodes.slice(0, 40), c = Math.min(18, Math.max(9, Math.floor(330 / (nodes.length + 2)))), L = 112;
    const S = svg("svg", { width: L + (nodes.length + 2) * c, height: nodes.length * c + 4, role: "img", "aria-label": "Which draft token sees which in the one target pass" });
    const sees = (i, j) => { for (let k = i; k >= 0; k = r.nodes[k].parent) if (k === j) return true; return false; };
    nodes.forEach((a, i) => {
      const on = a.id === v.sel, acc = SV.fold.verdictOf(r, a.id, v.phase) === "acc";
      S.append(svg("text", { x: L - 8, y: i * c + c - 3, "text-anchor": "end", css: { "font-family": "var(--sv-mono)", "font-size": Math.min(12, c - 1) + "px", "font-weight": on ? 600 : 400, fill: on ? "var(--sv-ink)" : "var(--sv-ink2)" } }, SV.fold.label(v.lane, a.tok, 13)));
      S.append(svg("rect", { x: L, y: i * c + 1, width: c * 1.5, height: c - 2, css: { fill: "var(--sv-over)" } }));
      for (let j = 0; j < nodes.length; j++) S.append(svg("rect", { "data-node": i, x: L + c * (j + 2), y: i * c + 1, width: c - 2, height: c - 2, rx: 1, css: { cursor: "pointer", fill: sees(i, j) ? (acc ? "var(--sv-acc)" : "var(--sv-verify)") : "var(--sv-sunken)", opacity: v.sel !== null && typeof v.sel === "number" && !on && sees(i, j) ? 0.55 : 1 } }));
    });
    card.append(el("div", { css: { "overflow-x": "auto" } }, S), el("p", { class: "note", css: { "max-width": "60ch" } }, "Rows read columns. Each draft token sees the committed text (the bar at the left), its ancestors and itself, so one target pass scores every branch at once." + (nodes.length < r.nodes.length ? " The first 40 of " + r.nodes.length + " are drawn." : "")), cache(v));
    return card;
  }
  function cache(v) {
    const kv = v.round && v.round.commit && v.phase >= 4 ? v.round.commit.kv : null;
    if (!kv || typeof kv !== "object") return el("p", { class: "note" }, "The cache is settled when the round commits.");
    return el("p", { class: "note" }, "Key-value cache: " + kv.before + " rows before, " + kv.after + " after; " + (kv.dropped ? kv.dropped + " rows of refused tokens dropped." : "nothing dropped."));
  }

  function lens(v) {
    const card = el("div", { class: "card" });
    for (const rec of v.round.lens.slice(0, 6)) {
      card.append(el("div", null, el("b", null, String(rec.kind)), el("dl", { css: { display: "grid", "grid-template-columns": "auto minmax(0, 1fr)", gap: "4px 16px", "margin-top": "8px" } },
        Object.entries(rec.data || {}).slice(0, 24).flatMap(([k, x]) => [el("dt", { class: "quiet" }, k), el("dd", { class: "mono small", css: { "overflow-wrap": "anywhere" } }, SV.dom.parts(SV.text.visible(typeof x === "string" ? x : JSON.stringify(x)).slice(0, 40)))]))));
    }
    return card;
  }

  SV.log = { log, mask, lens };
})();
