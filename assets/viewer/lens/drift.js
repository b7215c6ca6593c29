/* What a lossy rule gives up: nats of drift at each place a token was tried, and their sum over the run. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { nums, num, say, bars, line, short } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[notes.length - 1] || {},
      values = notes.flatMap((n) => nums(n && n.nats, 64)),
      sum = values.reduce((a, b) => a + b, 0);
    host.append(
      say(
        "This rule lets through more than the target's distribution allows. Given up this round: " +
          short(sum) +
          " nats.",
        num(d.threshold) === null ? "" : " A token is kept above probability " + short(d.threshold) + ".",
      ),
    );
    bars(host, {
      name: "Drift at each tried position",
      width: c.width,
      values,
      labels: values.map((_, i) => String(i + 1)),
      height: 104,
    });
    let all = 0;
    const past = c
      .history()
      .map(({ round, data }) => [round, (all += nums(data && data.nats, 64).reduce((a, b) => a + b, 0))]);
    if (past.length > 1)
      line(host, {
        name: "Drift so far",
        width: c.width,
        series: [{ points: past, end: short(all) + " nats" }],
        height: 104,
      });
  }

  SV.lens.drift = { title: "Drift from the target's distribution", draw };
})();
