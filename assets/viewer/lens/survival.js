/* STree: how much of the committed state each row of the tree reads, and how little a round writes. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { nums, int, bars, line, say, short } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      share = nums(d.share, 96),
      nodes = (c.round && c.round.nodes) || [],
      label = (i) => (i === 0 ? "root" : nodes[i - 1] ? c.label(nodes[i - 1].tok, 8) : "");
    host.append(
      say(
        count(Math.max(0, share.length - 1), "position") +
          " checked without writing the state (" +
          short(int(d.state_bytes, 0) / 1000) +
          " kB); then " +
          count(int(d.replayed, 0), "row") +
          " replayed into it, the root among them.",
      ),
    );
    bars(host, {
      name: "Share of the committed state that each row reads",
      width: c.width,
      values: share,
      labels: share.map((_, i) => label(i)),
      cls: (i) => (nodes[i - 1] ? c.verdict(nodes[i - 1].id) : ""),
      height: 120,
    });
    const past = c.history().map(({ round, data }) => [round, int(data && data.replayed, 0)]);
    if (past.length > 1)
      line(host, {
        name: "Rows replayed in each round",
        width: c.width,
        series: [{ points: past, end: short(past[past.length - 1][1]) }],
        height: 104,
      });
  }

  SV.lens.survival = { title: "The state along the branches", draw };
})();
