/* A block drafted in one pass: how far the drafter trusts each place, against what came of it. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { num, int, say, bars, list, short } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      sure = list(d.confidence).map((x) => num(x) ?? 0),
      nodes = c.round.nodes.filter((n) => !n.probe).sort((a, b) => a.depth - b.depth),
      drafted = int(d.drafted, nodes.length);
    let all = 1;
    for (const x of sure.slice(0, drafted)) all *= x;
    host.append(
      say(
        "The drafter guessed at once " +
          count(int(d.block, nodes.length), "position") +
          "; " +
          count(drafted, "token") +
          " were sent. ",
        sure.length > drafted
          ? "The draft ended where it no longer trusted itself."
          : "It gave the whole draft a chance of " +
              Math.round(100 * all) +
              " %; " +
              SV.dom.count(c.round.path.length, "token") +
              " accepted.",
      ),
    );
    if (sure.length)
      bars(host, {
        name: "The drafter's trust in each position",
        width: c.width,
        values: sure,
        labels: sure.map((_, i) => (nodes[i] ? c.label(nodes[i].tok, 8) : "not sent")),
        cls: (i) => (nodes[i] ? c.verdict(nodes[i].id) : "skipped"),
        most: 1,
      });
  }

  function masks(host, notes, c) {
    const d = notes[0] || {},
      sure = list(d.chances).map((x) => num(x) ?? 0),
      nodes = c.round.nodes.filter((n) => !n.probe).sort((a, b) => a.depth - b.depth);
    host.append(
      say(
        "The drafter guessed at once " +
          count(int(d.places, sure.length), "position") +
          ", each without knowing what the one before it became. " +
          count(c.round.path.length, "token") +
          " accepted.",
      ),
    );
    bars(host, {
      name: "The drafter's probability of what it drew at each position",
      width: c.width,
      values: sure,
      labels: sure.map((_, i) => (nodes[i] ? c.label(nodes[i].tok, 8) : String(i + 1))),
      cls: (i) => (nodes[i] ? c.verdict(nodes[i].id) : "skipped"),
      most: 1,
    });
  }

  function reach(host, notes, c) {
    const d = notes[0] || {},
      reached = list(d.reached).map((x) => num(x) ?? 0),
      alone = list(d.alone).map((x) => num(x) ?? 0),
      nodes = c.round.nodes.filter((n) => !n.probe),
      best = nodes
        .map((n, i) => ({ n, i }))
        .filter(({ i }) => i < reached.length)
        .slice(0, 24),
      total = (values) => values.reduce((a, b) => a + b, 0);
    host.append(
      say(
        "Given the path above each node the tree hopes for " +
          short(total(reached)) +
          " accepted tokens; the block's positions alone, each blind to the others, would say " +
          short(total(alone)) +
          ". It got " +
          c.round.path.length +
          ".",
      ),
    );
    for (const [name, values] of [
      ["Probability of each node, given its path", reached],
      ["The same by the positions alone", alone],
    ])
      bars(host, {
        name,
        width: c.width,
        values: best.map(({ i }) => values[i] ?? 0),
        labels: best.map(({ n }) => c.label(n.tok, 8)),
        cls: (at) => c.verdict(best[at].n.id),
        most: 1,
      });
  }

  SV.lens.reach = { title: "What the path makes of a node", draw: reach };
  SV.lens.masks = { title: "Places guessed at once", draw: masks };
  SV.lens.block = { title: "Trust in the block", draw };
})();
