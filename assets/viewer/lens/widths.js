/* Candidates in proportion to doubt: how sure the draft was at each place of its chain, and how many tokens it offered there. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { nums, ints, say, bars } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      sure = nums(d.sure, 64),
      wide = ints(d.wide, 64),
      all = wide.reduce((a, b) => a + b, 0),
      path = c.round.path || [];
    host.append(
      say(
        "A chain of " + count(wide.length, "token") + " with " + count(all - wide.length, "candidate") + " beside it. ",
        "Where the draft is sure one token stands alone; where it is not, others stand beside it.",
      ),
    );
    bars(host, {
      name: "How sure the draft was at each position",
      width: c.width,
      values: sure,
      labels: sure.map((_, i) => String(i + 1)),
      cls: (i) => (i < path.length ? "acc" : i === path.length ? "rej" : ""),
      most: 1,
    });
    host.append(say("Candidates offered at each position, the chain's own token among them."));
    bars(host, {
      name: "Candidates at each position",
      width: c.width,
      values: wide,
      labels: wide.map((_, i) => String(i + 1)),
      height: 104,
    });
  }

  SV.lens.widths = { title: "Candidates where it doubts", draw };
})();
