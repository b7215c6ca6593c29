/* A tree grown by confidence: the probability of the path to each node, which is what the cut keeps the best of. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { num, int, say, bars, strip, short } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      nodes = c.round.nodes.filter((n) => !n.probe),
      value = [];
    for (const n of nodes) value[n.id] = (n.parent >= 0 ? (value[n.parent] ?? 1) : 1) * (n.q ?? 1);
    host.append(
      say(
        count(int(d.grown, nodes.length), "node") + " grown, the best " + int(d.kept, nodes.length) + " kept. ",
        num(d.expected) === null
          ? ""
          : "By its own probabilities the draft hopes for " +
              short(d.expected) +
              " accepted tokens; it got " +
              c.round.path.length +
              ".",
      ),
    );
    const best = [...nodes].sort((a, b) => value[b.id] - value[a.id]).slice(0, 24);
    if (best.some((n) => n.q !== null))
      bars(host, {
        name: "Probability of the path to each node",
        width: c.width,
        values: best.map((n) => value[n.id]),
        labels: best.map((n) => c.label(n.tok, 8)),
        cls: (i) => c.verdict(best[i].id),
        most: 1,
      });
    else
      strip(
        host,
        best
          .sort((a, b) => a.depth - b.depth || a.id - b.id)
          .map((n) => ({ text: c.label(n.tok, 12), cls: c.verdict(n.id), node: n.id, note: "depth " + n.depth })),
        "The nodes that were kept",
      );
  }

  SV.lens.confidence = { title: "Confidence of the draft", draw };
})();
