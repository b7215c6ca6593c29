/* Which of the target's layers each draft layer reads: a table of shares, and what each draft layer prefers. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { nums, ints, list, say, bars } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      layers = ints(d.layers, 64),
      rows = list(d.shares)
        .slice(0, 16)
        .map((row) => nums(row, 64));
    host.append(
      say("Each draft layer mixes the target's layers in its own shares, which were learned and do not change."),
    );
    rows.forEach((row, i) =>
      bars(host, {
        name: "Draft layer " + (i + 1) + " reads these layers of the target",
        width: c.width,
        values: row,
        labels: row.map((_, j) => (layers[j] === undefined ? "?" : "layer " + layers[j])),
        most: 1,
        height: 104,
      }),
    );
  }

  SV.lens.mixture = { title: "What each draft layer reads", draw };
})();
