/* Sequoia: the table of its dynamic program, expected tokens by depth and size, and the tree it chose from the measured costs. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { list, nums, num, int, say, bars, heatmap, short } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[notes.length - 1] || {},
      table = list(d.table, 64).map((row) => list(row, 256).map((x) => num(x)));
    host.append(
      say(
        "Planned: " +
          int(d.nodes, 0) +
          " nodes, " +
          int(d.depth, 0) +
          " deep. Darker: more expected tokens. The frame is what pays best at the prices measured in this run.",
      ),
    );
    heatmap(host, {
      name: "Expected tokens by depth and number of nodes",
      rows: table,
      at: [Math.max(0, int(d.depth, 1) - 1), Math.max(0, int(d.nodes, 1) - 1)],
      rowName: "depth",
      colName: "nodes",
      width: c.width,
    });
    const accept = nums(d.accept, 16);
    if (accept.length) {
      host.append(say("How often the draft's first, second, ... choice was accepted so far:"));
      bars(host, {
        name: "Acceptance by rank",
        width: c.width,
        values: accept,
        labels: accept.map((_, i) => String(i + 1)),
        most: 1,
        height: 96,
      });
    }
    const at = table[Math.max(0, int(d.depth, 1) - 1)]?.[Math.max(0, int(d.nodes, 1) - 1)];
    if (num(at) !== null) host.append(say("Expected from this tree: " + short(at) + " tokens a round."));
  }

  SV.lens.sequoia = { title: "The plan of the tree", draw };
})();
