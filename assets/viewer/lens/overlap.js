/* How well draft and target agree: what both distributions have in common, over the rounds too, and what learning adds. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { num, nums, int, say, bars, line, short } = SV.pictures;
  const mean = (values) => values.reduce((a, b) => a + b, 0) / Math.max(1, values.length);

  function draw(host, notes, c) {
    const d = notes[0] || {},
      values = nums(d.line, 64),
      nodes = c.round.nodes.filter((n) => !n.probe),
      every = int(d.every),
      past = c.history().map(({ round, data }) => [round, nums(data && data.line, 64)]);
    if (values.length) {
      host.append(
        say("What both models find likely, together, is the chance that a drafted token is kept: bars near 1 agree."),
      );
      bars(host, {
        name: "Agreement of draft and target, position by position",
        width: c.width,
        values,
        labels: values.map((_, i) => (nodes[i] ? c.label(nodes[i].tok, 8) : String(i + 1))),
        cls: (i) => (nodes[i] ? c.verdict(nodes[i].id) : ""),
        most: 1,
      });
    } else host.append(say("No position was judged in this round."));
    if (every !== null)
      host.append(
        say(
          "The draft has learned " +
            count(int(d.updates, 0), "time") +
            "; " +
            int(d.waiting, 0) +
            " of " +
            every +
            " rejected positions are gathered for the next.",
        ),
      );
    const found = past.filter(([, matches]) => matches.length);
    if (found.length > 1) {
      let held = null; // as a moving mean: single rounds are noise
      const smooth = found.map(([round, matches]) => {
        held = held === null ? mean(matches) : held + 0.2 * (mean(matches) - held);
        return [round, held];
      });
      const steps = c.history().filter(({ data }) => data && num(data.before) !== null);
      /** @type {Record<string, any>[]} */
      const series = [{ points: smooth, end: "now " + short(smooth[smooth.length - 1][1]) }];
      if (steps.length) {
        const before = steps.map(({ round, data }) => [round, num(data.before, 0)]);
        series.push({
          points: before,
          cls: "thin",
          step: true,
          end: "unlearned " + short(before[before.length - 1][1]),
        });
        series.push({ points: steps.map(({ round, data }) => [round, num(data.now, 0), "acc"]), dots: true });
      }
      host.append(
        say(
          steps.length
            ? "Line: agreement as drafted. Dots: steps of learning. Thin line: what the draft would agree had it never learned."
            : "Agreement over the rounds, as a moving mean.",
        ),
      );
      line(host, { name: "Agreement over the rounds", width: c.width, series, most: 1, right: 110 });
    }
  }

  /* A head that learns from the target's rows: what it had in common with the target, beside what it had as it came. */
  function distilled(host, notes, c) {
    const d = notes[0] || {},
      steps = c.history().filter(({ data }) => data && num(data.now) !== null);
    host.append(
      say(
        "The head has learned " + count(int(d.updates, 0), "time") + "; ",
        int(d.waiting, 0) + " of " + count(int(d.every, 1), "round") + " are gathered for the next.",
      ),
    );
    if (!steps.length) return;
    const points = (name) => steps.map(({ round, data }) => [round, num(data[name], 0)]),
      now = points("now"),
      before = points("before");
    host.append(
      say(
        "What head and target find likely, together, at each step of learning; last " +
          short(now[now.length - 1][1]) +
          ". ",
        "Thin line: the head as it came; last " + short(before[before.length - 1][1]) + ".",
      ),
    );
    line(host, {
      name: "Agreement at the steps of learning",
      width: c.width,
      series: [
        { points: now, dots: now.length < 2 },
        { points: before, cls: "thin", step: true },
      ],
      most: 1,
    });
  }

  SV.lens.distilled = { title: "The head learns", draw: distilled };
  SV.lens.overlap = { title: "Agreement with the target", draw };
})();
