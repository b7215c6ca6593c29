/* A unit written in one pass over blanks: its tokens and how sure the model was of each. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { int, ints, nums, say, bars } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      tokens = ints(d.tokens, 32),
      chances = nums(d.chances, 32);
    host.append(
      say(
        count(tokens.length, "token") +
          " guessed at once in the pass before; " +
          count(int(d.blanks, 0), "blank") +
          " wait for the next guesses.",
      ),
    );
    if (tokens.length)
      bars(host, {
        name: "Sureness of each guessed token",
        width: c.width,
        values: tokens.map((_, i) => chances[i] ?? 0),
        labels: tokens.map((t) => c.label(t, 8)),
        cls: (i) => (c.round.nodes[i] ? c.verdict(i) : ""),
        most: 1,
      });
  }

  SV.lens.unit = { title: "Guesses of one pass", draw };
})();
