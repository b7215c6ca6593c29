/* Where copied tokens come from: the match that was found, and an arc from every drafted token to the place it was copied
   from. Kinds match and suffix; `copied` stands for any draft whose nodes name their source. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { svg, count } = SV.dom;
  const { int, say, frame, label: text, short, word } = SV.pictures;
  const CW = 7.25,
    PAD = 10,
    MOST = 3;

  /* A token of prompt and output by its place in both together. */
  function at(c, place) {
    const ids = c.lane.header ? c.lane.header.prompt.ids : [];
    if (place < ids.length) return c.label(ids[place], 12);
    const t = c.lane.tokens[place - ids.length];
    return t ? c.label(t.tok, 12) : null;
  }
  const ended = (c) => (c.lane.header ? c.lane.header.prompt.ids.length : 0) + SV.fold.upto(c.lane, c.round.i);

  /* The drafted tokens as runs that follow each other in their source, down the accepted path or the first branch. */
  function runs(c) {
    const r = c.round,
      path = r.path.length ? r.path.map((id) => r.nodes[id]) : [],
      out = [];
    let next = path.length ? path[path.length - 1].kids : r.nodes.filter((n) => n.parent === -1).map((n) => n.id);
    while (next.length && path.length < 24) {
      const n = r.nodes[next[0]];
      path.push(n);
      next = n.kids;
    }
    for (const n of path) {
      if (!n.src || !Number.isInteger(n.src.start)) continue;
      const last = out[out.length - 1];
      if (last && last.source === n.src.source && last.to === n.src.start) {
        last.nodes.push(n);
        last.to = n.src.start + 1;
      } else out.push({ source: n.src.source, from: n.src.start, to: n.src.start + 1, nodes: [n] });
    }
    return out.slice(0, MOST);
  }
  const widthOf = (s) => Math.max(16, Array.from(s).length * CW + PAD);

  function place(items, x) {
    for (const it of items) {
      it.x = x;
      it.w = widthOf(it.text);
      x += it.w + 3;
    }
    return x;
  }

  function picture(c, run, n) {
    const own = run.source === "context",
      here = ended(c),
      known = (i) => (own ? at(c, i) : null),
      top = [],
      low = [];
    if (own)
      for (let i = Math.max(0, run.from - Math.max(n, 1) - 1); i < run.from; i++) {
        const s = known(i);
        if (s !== null) top.push({ text: s, cls: i >= run.from - n ? "m" : "q", place: i });
      }
    for (const node of run.nodes) top.push({ text: c.label(node.tok, 12), cls: "c", node });
    for (let i = Math.max(0, here - Math.max(n, 2) - 1); i < here; i++) {
      const s = at(c, i);
      if (s !== null) low.push({ text: s, cls: i >= here - n ? "m" : "q" });
    }
    for (const node of run.nodes) low.push({ text: c.label(node.tok, 12), cls: c.verdict(node.id), node });
    const w = Math.max(place(top, 2), place(low, 2)) + 4,
      S = frame(Math.max(w, 200), 112, "Copied tokens and the place they come from");
    const draw = (it, y) => {
      const g = svg("g", { class: "lt " + it.cls, "data-node": it.node ? it.node.id : null });
      g.append(
        svg("rect", { x: it.x, y, width: it.w, height: 22, rx: 3 }),
        text(it.x + it.w / 2, y + 15, it.text, "tk", "middle"),
      );
      S.append(g);
    };
    run.nodes.forEach((node) => {
      const a = top.find((t) => t.node === node),
        b = low.find((t) => t.node === node),
        x1 = a.x + a.w / 2,
        x2 = b.x + b.w / 2;
      S.append(svg("path", { class: "arc " + c.verdict(node.id), d: `M${x1} 40C${x1} 62 ${x2} 56 ${x2} 78` }));
    });
    const ma = top.filter((t) => t.cls === "m"),
      mb = low.filter((t) => t.cls === "m");
    if (ma.length && mb.length) {
      const l = (m) => m[0].x,
        r = (m) => m[m.length - 1].x + m[m.length - 1].w;
      S.append(svg("path", { class: "band", d: `M${l(ma)} 40L${r(ma)} 40L${r(mb)} 78L${l(mb)} 78Z` }));
    }
    S.append(
      text(
        2,
        11,
        (own ? "earlier in the text, tokens " : (run.source || "a store") + ", positions ") +
          run.from +
          (run.to > run.from + 1 ? " to " + (run.to - 1) : ""),
        "ax",
      ),
    );
    top.forEach((it) => draw(it, 18));
    low.forEach((it) => draw(it, 78));
    return S;
  }

  function draw(host, notes, c) {
    const d = notes[0] || {},
      n = int(d.n, 0) || int(d.matched, 0) || 0,
      list = runs(c);
    if (n)
      host.append(
        say(
          "The last ",
          n === 1 ? "token" : n + " tokens",
          n === 1 ? " of the text was written before: " : " of the text were written before: ",
          Number.isInteger(d.copied)
            ? "what followed them is copied, " + count(d.copied, "token") + "."
            : "what followed them is the draft.",
          typeof d.score === "number"
            ? " Expected to be accepted: " + short(d.score) + (d.score === 1 ? " token." : " tokens.")
            : "",
          d.source ? " Found in " + word(d.source) + "." : "",
        ),
      );
    if (!list.length) host.append(say("Nothing was copied this time."));
    for (const run of list) host.append(SV.dom.el("div", { class: "lscroll" }, picture(c, run, Math.min(n, 12))));
  }

  for (const [kind, title] of [
    ["match", "Match in the text"],
    ["suffix", "Longest suffix seen before"],
    ["copied", "Copied from"],
  ])
    SV.lens[kind] = { title, draw, copies: true };
  SV.lens.match.runs = runs;
})();
