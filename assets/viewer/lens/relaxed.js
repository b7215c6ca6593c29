/* LANTERN: which drafted patches borrowed the probability of their look-alikes, and how far the rule then is from the target. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { list, num, int, say, bars, line, short } = SV.pictures;

  const testsOf = (data) => list(data && data.tests, 256).map((t) => (t && typeof t === "object" ? t : {}));
  const sum = (values) => values.reduce((a, b) => a + b, 0);

  function draw(host, notes, c) {
    const tests = notes.flatMap(testsOf),
      last = notes[notes.length - 1],
      borrowed = tests.filter((t) => int(t.added, 0) > 0),
      label = (t) => {
        const node = c.round.nodes[int(t.node, -1)];
        return node ? c.label(node.tok, 8) : "";
      };
    host.append(
      say(
        borrowed.length + " of " + tests.length + " tested patches borrowed the probability of look-alikes, ",
        short(sum(borrowed.map((t) => int(t.added, 0)))) + " look-alikes in all; at most " + short(last && last.delta),
        " may be borrowed.",
      ),
    );
    bars(host, {
      name: "Probability borrowed by each tested patch",
      width: c.width,
      values: tests.map((t) => num(t.mass, 0)),
      labels: tests.map(label),
      height: 104,
    });
    bars(host, {
      name: "Total variation from the target's distribution at each test",
      width: c.width,
      values: tests.map((t) => num(t.tv, 0)),
      labels: tests.map(label),
      height: 104,
    });
    let all = 0;
    const past = c.history().map(({ round, data }) => [round, (all += sum(testsOf(data).map((t) => num(t.tv, 0))))]);
    if (past.length > 1)
      line(host, {
        name: "Total variation so far, summed over the tests",
        width: c.width,
        series: [{ points: past, end: short(all) }],
        height: 104,
      });
  }

  SV.lens.relaxed = { title: "Look-alikes that were counted", draw };
})();
