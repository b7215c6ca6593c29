/* Lookahead: the n-grams of the pool that fit the last token, and the window of guesses that the same pass refines. Token
   recycling: how much of the successor table is known, and which successors were tried. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, count } = SV.dom;
  const { int, ints, list, say, strip, chip } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      guesses = list(d.guesses, 12),
      window = list(d.window, 12);
    if (!Array.isArray(d.guesses) && !Array.isArray(d.window)) return successors(host, d, c);
    host.append(
      say(
        "The pool knows ",
        count(int(d.keys, 0), "key") + "; ",
        guesses.length
          ? count(guesses.length, "n-gram") + " follow the last token."
          : "nothing yet follows the last token.",
      ),
    );
    for (const g of guesses)
      host.append(
        el(
          "div",
          { class: "lstrip" },
          ints(g, 16).map((t) => chip(c.label(t, 12), "")),
        ),
      );
    if (!window.length) return;
    host.append(
      el("b", { class: "lsub" }, "Lookahead window"),
      say(
        "Each row guesses one position further; the pass refines all of them at once and their diagonals become n-grams.",
      ),
    );
    host.append(
      el(
        "div",
        { class: "lscroll" },
        el(
          "div",
          { class: "lwin" },
          window.map((row, i) =>
            el(
              "div",
              { css: { "padding-inline-start": i * 14 + "px" } },
              ints(row, 24).map((t) => chip(c.label(t, 8), "q")),
            ),
          ),
        ),
      ),
    );
  }

  /* Which of a token's known successors was the right one: rank by depth over the rounds so far. */
  function successors(host, d, c) {
    host.append(
      say(
        "The table knows successors of ",
        count(int(d.keys, 0), "token") + "; ",
        count(int(d.nodes, c.round.nodes.length), "node") + " of the fixed tree found one.",
      ),
    );
    const hits = [];
    for (let i = Math.max(0, c.round.i - 400); i <= c.round.i; i++) {
      const r = c.lane.rounds[i];
      for (const id of r.path) {
        const n = r.nodes[id],
          sib = n.parent < 0 ? r.nodes.filter((m) => m.parent < 0).map((m) => m.id) : r.nodes[n.parent].kids,
          rank = sib.indexOf(id);
        if (n.depth > 12 || rank > 15 || rank < 0) continue;
        while (hits.length <= rank) hits.push([]);
        while (hits[rank].length < n.depth) hits[rank].push(0);
        hits[rank][n.depth - 1]++;
      }
    }
    if (!hits.length) return;
    host.append(
      el("b", { class: "lsub" }, "Which successor was right"),
      say("Darker: accepted more often so far. Row: rank of the successor. Column: depth in the tree."),
    );
    SV.pictures.heatmap(host, {
      name: "Accepted successors by rank and depth",
      rows: hits.map((r) => [...r, ...Array(Math.max(...hits.map((x) => x.length)) - r.length).fill(0)]),
      rowName: "rank",
      colName: "depth",
      width: c.width,
    });
    if (c.round.path.length)
      strip(
        host,
        c.round.path.map((id) => ({ text: c.label(c.round.nodes[id].tok, 12), cls: "acc", node: id })),
        "Accepted successors",
      );
  }

  SV.lens.pool = { title: "Pool of guesses", draw };
})();
