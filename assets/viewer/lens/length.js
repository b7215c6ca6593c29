/* How much to draft: the length chosen each round, and a bandit's arms with what it believes of them. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { int, ints, nums, num, say, bars, line, short, list, word } = SV.pictures;

  function length(host, notes, c) {
    const d = notes[0] || {},
      past = c.history().map(({ round, data }) => [round, num(data && data.gamma, 0)]),
      kept = past.map(([round]) => [round, c.lane.rounds[round].path.length, "acc"]);
    host.append(
      say(
        "This round drafts up to " + int(d.gamma, 0) + ". ",
        num(d.predicted) === null ? "" : "The network expected " + short(d.predicted) + " to be kept. ",
        num(d.acceptance) === null ? "" : "Acceptance so far: " + short(d.acceptance) + ". ",
        "Line: the length chosen. Dots: what was accepted.",
      ),
    );
    line(host, {
      name: "Draft length over the rounds",
      width: c.width,
      series: [
        { points: past, step: true, end: "drafts " + int(d.gamma, 0) },
        { points: kept, dots: true },
      ],
    });
  }

  function arms(host, notes, c) {
    const d = notes[notes.length - 1] || {},
      gammas = ints(d.gammas, 24),
      means = nums(d.means, 24),
      pulls = nums(d.pulls, 24),
      arm = int(d.arm, -1);
    const names = list(d.names, 24).map((x) => word(x, 24)),
      whole = names.length > 0,
      label = (i) => (whole ? names[i] || "?" : String(gammas[i] ?? "?")),
      named = (i) => (whole ? label(i) : "length " + label(i));
    host.append(
      say(
        "The bandit tries " +
          (whole ? "ways to draft" : "draft lengths") +
          " and keeps what brings most tokens a second. This round: " +
          named(arm) +
          ".",
      ),
    );
    bars(host, {
      name: "Reward of each " + (whole ? "arm" : "length") + " so far",
      width: c.width,
      values: gammas.map((_, i) => means[i] ?? 0),
      labels: gammas.map((_, i) => label(i)),
      mark: (i) => i === arm,
      most: 1,
      height: 116,
    });
    host.append(say("Pulled: " + gammas.map((_, i) => named(i) + " " + count(pulls[i] ?? 0, "time")).join(", ") + "."));
    const past = c
      .history()
      .map(({ round, data }) => [
        round,
        whole ? int(data && data.arm, 0) + 1 : (ints(data && data.gammas, 24)[int(data && data.arm, 0)] ?? 0),
        "on",
      ]);
    line(host, {
      name: (whole ? "Number of the arm" : "Length") + " chosen over the rounds",
      width: c.width,
      series: [
        { points: past, step: true, cls: "thin" },
        { points: past, dots: true },
      ],
      height: 110,
      right: 20,
    });
  }

  /* Which of several drafters answered. */
  function which(host, notes, c) {
    const d = notes[0] || {},
      of = Math.min(12, Math.max(1, int(d.of, 1))),
      used = Array(of).fill(0);
    for (const { data } of c.history()) {
      const a = int(data && data.arm, -1);
      if (a >= 0 && a < of) used[a]++;
    }
    const arm = int(d.arm, 0),
      drafted = c.round.nodes.some((n) => !n.probe);
    host.append(
      say(
        !drafted
          ? "No drafter found anything in this round. "
          : "Drafter " +
              (arm + 1) +
              " of " +
              of +
              (arm ? " answered; the earlier ones had too little to offer. " : " answered, and no other was asked. "),
        "Rounds by the last drafter asked:",
      ),
    );
    bars(host, {
      name: "Rounds by the last drafter asked",
      width: c.width,
      values: used,
      labels: used.map((_, i) => String(i + 1)),
      mark: (i) => i === d.arm,
      height: 104,
    });
  }

  SV.lens.length = { title: "Draft length", draw: length };
  SV.lens.arms = { title: "Arms of the bandit", draw: arms };
  SV.lens.arm = { title: "Which drafter answered", draw: which };
})();
