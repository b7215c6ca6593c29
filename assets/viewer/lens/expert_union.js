/* Sparse experts: which of them each token of the pass used, and the bytes that the pass read for it. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { NAMED, int, ints, nums, num, list, say, bars, heatmap, strip } = SV.pictures;
  const CELL = 5 /* pixels: the least of a cell */,
    WIDE = 7,
    MOST = 128; /* columns of a heatmap */
  const kB = (bytes) => Math.round(bytes / 1000) + " kB";

  function draw(host, notes, c) {
    const d = notes[notes.length - 1] || {},
      experts = Math.max(1, Math.min(64, int(d.experts, 1))),
      used = list(d.used, 12).map((layer) => list(layer, 48).map((row) => ints(row, 64))),
      rows = used.length ? used[0].length : 0,
      bytes = num(d.bytes) ?? 0,
      whole = num(d.whole) ?? 0,
      nodes = c.round.nodes;
    const words = [
      "all read",
      ...Array.from({ length: rows }, (_, row) =>
        row && nodes[row - 1] ? c.label(nodes[row - 1].tok, 8) : "last token",
      ),
    ];
    const uses = (layer, row, e) => (row < 0 ? layer.flat() : layer[row] || []).includes(e),
      line = (layers, row) =>
        layers.flatMap((layer, i) => [
          ...(i ? [null] : []),
          ...Array.from({ length: experts }, (_, e) => (uses(layer, row, e) ? 1 : 0)),
        ]),
      show = (place, layers, name, colName) =>
        heatmap(place, {
          name,
          rows: Array.from({ length: rows + 1 }, (_, row) => line(layers, row - 1)),
          rowNames: words,
          colName,
          width: Math.min(c.width, layers.length > 1 ? c.width : NAMED + 8 + WIDE * experts),
        });
    /* Where all layers would not fit beside each other, each has a picture of its own. */
    const columns = (experts + 1) * used.length;
    if (columns <= MOST && c.width > NAMED + CELL * columns)
      show(
        host,
        used,
        "Experts used, by token and layer",
        "experts of layer 1, 2, \u2026, side by side; dark: switched on",
      );
    else {
      const each = SV.dom.el("div", { css: { display: "flex", flexWrap: "wrap", columnGap: "16px" } });
      host.append(each);
      used.forEach((layer, i) => {
        /* As wide as its picture: what shrinks is cut off. */
        const own = each.appendChild(SV.dom.el("div", { css: { flex: "none", maxWidth: "100%" } }));
        show(
          own,
          [layer],
          `Experts used, by token: layer ${i + 1}`,
          `layer ${i + 1}: ${new Set(layer.flat()).size} of ${experts} read (dark)`,
        );
      });
    }
    const alone = (num(d.separately) ?? 0) / Math.max(1, rows);
    host.append(
      say(
        `One word alone reads ${kB(alone)} of experts, this pass of `,
        `${rows} words ${kB(bytes)} (first row); all of them are ${kB(whole)}.`,
      ),
    );
    strip(
      host,
      Array.from({ length: rows }, (_, row) => ({
        text: words[row + 1],
        cls: row && nodes[row - 1] ? c.verdict(nodes[row - 1].id) : "",
        node: row && nodes[row - 1] ? nodes[row - 1].id : undefined,
        note: String(used.reduce((sum, layer) => sum + (layer[row] || []).length, 0)),
      })),
      "Experts used by each token, over all layers",
    );
    const mean = nums(d.mean, 64).map((x) => x / 1000);
    if (!mean.length) return;
    host.append(
      say(
        "kB of experts that a pass over 1, 2, \u2026 tokens of the draft read, on average in this run. ",
        "All other weights are " + kB(num(d.other) ?? 0) + ".",
      ),
    );
    bars(host, {
      name: "Bytes of experts read, by tokens in the pass",
      width: c.width,
      values: mean,
      labels: mean.map((_, i) => String(i + 1)),
      mark: (i) => i === rows - 1,
      limit: whole / 1000,
      limitName: "all experts",
    });
  }

  SV.lens.expert_union = { title: "Experts", draw };
})();
