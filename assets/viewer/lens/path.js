/* The pass in which a target drafts for itself through a second path (Uno, Orthrus): what each row held, and what it gave. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { int, ints, say, strip } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      inputs = ints(d.tokens, 64),
      first = int(d.first, 0),
      nodes = c.round.nodes.filter((n) => !n.probe);
    host.append(
      say(
        "One pass of the target over " +
          count(inputs.length + 1, "row") +
          " drafted " +
          count(nodes.length, "token") +
          ". ",
        first
          ? "The root\u2019s row ran with the target\u2019s own weights. "
          : "Every row ran through the second path. ",
        d.both ? "The rows saw each other in both directions." : "Each row saw those before it.",
      ),
    );
    const held = inputs.slice(0, Math.max(0, nodes.length - 1));
    strip(
      host,
      [
        { text: "root", cls: first ? "" : "no" },
        ...held.map((token) => ({ text: d.masked ? "\u2592" : c.label(token, 12), cls: "no" })),
      ],
      "What the rows held",
    );
    strip(
      host,
      nodes.map((n) => ({ text: c.label(n.tok, 12), cls: c.verdict(n.id), node: n.id })),
      "What they gave",
    );
  }

  SV.lens.second_path = { title: "Drafted by the target itself", draw };
})();
