/* Staged drafting: the draft was itself written by speculative decoding, in rounds of its own. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { ints, say, strip } = SV.pictures;

  function draw(host, notes, c) {
    const sizes = ints((notes[0] || {}).sizes, 64).filter((x) => x >= 0),
      nodes = c.round.nodes.filter((n) => !n.probe);
    host.append(
      say(
        "The draft model was itself helped: " +
          count(nodes.length, "token") +
          " in " +
          count(sizes.length, "inner round") +
          ".",
      ),
    );
    let at = 0;
    sizes.forEach((size, i) => {
      const part = nodes.slice(at, at + size);
      at += size;
      if (part.length)
        strip(
          host,
          [
            { text: String(i + 1), cls: "no" },
            ...part.map((n) => ({ text: c.label(n.tok, 12), cls: c.verdict(n.id), node: n.id })),
          ],
          "Inner round " + (i + 1),
        );
    });
  }

  SV.lens.staged = { title: "Rounds inside the draft", draw };
})();
