/* The judge's score of each drafted token, next to its verdict (Judge decoding). */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { ints, nums, num, say, bars, short } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      chances = nums(d.chances, 64),
      tried = ints(d.nodes, 64),
      forgiven = ints(d.forgiven, 64),
      least = num(d.least, 0.5),
      node = (i) => c.round.nodes.find((n) => n.id === tried[i]),
      label = (i) => (node(i) ? c.label(node(i).tok, 8) : String(i + 1));
    host.append(
      say(
        forgiven.length
          ? "Rejected by the fair test, and let stand by the judge: "
          : "The judge had nothing to forgive in this round. ",
        forgiven.map((i) => label(i)).join(", "),
      ),
    );
    bars(host, {
      name: "The judge's chance that each token is a good one",
      width: c.width,
      values: chances,
      labels: chances.map((_, i) => label(i)),
      cls: (i) => (node(i) ? c.verdict(node(i).id) : ""),
      limit: least,
      limitName: "limit " + short(least),
      most: 1,
    });
  }

  SV.lens.judge = { title: "The judge", draw };
})();
