/* Linear attention: the groups of positions that the tree's rows lie in, and what each row reads locally and as a sum. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, count } = SV.dom;
  const { ints, int, say, chip } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      group = ints(d.group, 96),
      size = Math.max(1, int(d.size, 1)),
      at = int(d.at, 0),
      nodes = (c.round && c.round.nodes) || [],
      own = group[0] ?? 0,
      beyond = group.filter((g) => g > own).length;
    host.append(
      say(
        "The root is at position " +
          (at + 1) +
          ", " +
          ((at % size) + 1) +
          " of " +
          size +
          " in its group; " +
          count(int(d.complete, 0), "earlier group") +
          (d.complete === 1 ? " is" : " are") +
          " one sum of fixed size.",
      ),
      say(
        beyond
          ? count(beyond, "position") +
              " of the tree " +
              (beyond === 1 ? "lies" : "lie") +
              " beyond the border: there the root's group is read as a sum, too."
          : "The whole tree lies in the root's group: its rows read one another by squared relu attention.",
      ),
    );
    const shown = (i) => {
      const node = nodes[i - 1];
      return [i ? chip(node ? c.label(node.tok, 10) : "?", node ? c.verdict(node.id) : "") : chip("root"), " "];
    };
    for (const g of [...new Set(group)].sort((a, b) => a - b))
      host.append(
        el(
          "p",
          { class: "lsay", "data-group": g - own },
          g === own ? "Root's group: " : "Next group: ",
          group.flatMap((one, i) => (one === g ? shown(i) : [])),
        ),
      );
  }

  SV.lens.groups = { title: "Local and linear attention", draw };
})();
