/* Structured output: how much the grammar forbade at each token written, and the tokens it forced into the draft. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { ints, nums, list, num, say, bars } = SV.pictures;

  function grammar(host, notes, c) {
    const d = notes[notes.length - 1] || {},
      tokens = ints(d.tokens, 64),
      allowed = ints(d.allowed, 64),
      removed = nums(d.removed, 64),
      alone = list(d.top, 64).map((pair) => (Array.isArray(pair) && num(pair[0]) !== null ? pair[0] : -1)),
      other = tokens.filter((t, i) => alone[i] !== undefined && alone[i] !== t).length,
      single = allowed.filter((n) => n === 1).length;
    host.append(
      say(
        "The grammar left one choice at " +
          count(single, "position") +
          " of " +
          tokens.length +
          ". Without it the model's first choice would have been another token at " +
          count(other, "position") +
          ".",
      ),
    );
    bars(host, {
      name: "Probability that the grammar forbade",
      width: c.width,
      values: removed,
      labels: tokens.map((t) => c.label(t, 8)),
      most: 1,
      mark: (i) => allowed[i] === 1,
    });
  }

  function forced(host, notes, c) {
    const tokens = ints((notes[0] || {}).tokens, 64);
    host.append(say(count(tokens.length, "token") + " drafted because the grammar leaves no choice."));
    bars(host, {
      name: "Forced tokens",
      width: c.width,
      values: tokens.map(() => 1),
      labels: tokens.map((t) => c.label(t, 8)),
      cls: (i) => (c.round.nodes[i] ? c.verdict(i) : ""),
      most: 1,
    });
  }

  SV.lens.grammar = { title: "What the grammar allowed", draw: grammar };
  SV.lens.forced = { title: "Tokens the grammar forces", draw: forced };
})();
