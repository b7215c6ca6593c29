/* A draft that a diffusion model filled in (SpecDiff): one line a step, masks where nothing stood yet. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { int, ints, word, say, strip } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      steps = ints(d.steps, 64),
      nodes = c.round.nodes.filter((n) => !n.probe),
      passes = Math.min(16, Math.max(1, int(d.passes, 1)));
    if (word(d.order) === "chains") {
      const ends = nodes.filter((n) => !nodes.some((m) => m.parent === n.id)).length;
      host.append(say("One pass over the block, " + count(ends, "chain") + " drawn from it, each position by itself."));
      return;
    }
    host.append(
      say(
        count(nodes.length, "position") +
          " filled in by " +
          count(passes, "pass", "passes") +
          " over the block, " +
          (word(d.order) === "random" ? "in random order." : "from left to right."),
      ),
    );
    for (let step = 0; step < passes; step++)
      strip(
        host,
        [
          { text: String(step + 1), cls: "no" },
          ...nodes.map((n, i) =>
            (steps[i] ?? 0) > step
              ? { text: "\u2592", cls: "no" }
              : (steps[i] ?? 0) === step
                ? { text: c.label(n.tok, 12), cls: c.verdict(n.id), node: n.id }
                : { text: c.label(n.tok, 12), cls: "" },
          ),
        ],
        "After step " + (step + 1),
      );
  }

  SV.lens.diffusion = { title: "Filled in step by step", draw };
})();
