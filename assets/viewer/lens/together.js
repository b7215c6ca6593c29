/* Two models that share the writing: where the small one fell back and what the large one took back (BiLD), whose turn it is
   (entropy-adaptive decoding), what each thought of a token (FS-GEN), how a step was graded (SpecReason). */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { nums, num, int, ints, list, word, say, bars, line, strip, short } = SV.pictures;
  const percent = (x) => (num(x) === null ? "\u2013" : Math.round(100 * x) + " %");

  function fallback(host, notes, c) {
    const d = notes[0] || {},
      sure = nums(d.sure, 64),
      least = num(d.least, 0),
      nodes = c.round.nodes,
      gave = word(d.why) !== "full";
    host.append(
      say(
        "The small model wrote while its best token had at least " +
          short(least) +
          ". " +
          (gave
            ? "Fallback: at the marked position it was too unsure and wrote nothing, so the large one did."
            : "It handed over because its share was used up."),
      ),
    );
    bars(host, {
      name: "Sureness of the small model",
      width: c.width,
      values: sure,
      labels: sure.map((_, i) => (nodes[i] ? c.label(nodes[i].tok, 8) : "large")),
      limit: least,
      limitName: "limit " + short(least),
      most: 1,
      mark: (i) => sure[i] < least,
    });
  }
  function rollback(host, notes, c) {
    const d = notes[0] || {},
      nats = nums(d.nats, 64),
      bound = num(d.bound, 0),
      tried = c.round.tests;
    host.append(
      say(
        d.back === true
          ? "Rollback: the large model found the marked token too unlikely and took it back with all behind it, " +
              int(d.gone, 0) +
              " in all."
          : "The large model read what was written and took nothing back.",
      ),
    );
    bars(host, {
      name: "How unlikely the large model finds each token, in nats",
      width: c.width,
      values: nats,
      labels: nats.map((_, i) => (c.round.nodes[tried[i]] ? c.label(c.round.nodes[tried[i]].tok, 8) : String(i + 1))),
      limit: bound,
      limitName: "bound " + short(bound),
      mark: (i) => d.back === true && i === nats.length - 1,
    });
  }
  function turns(host, notes, c) {
    const d = notes[0] || {},
      limit = num(d.limit, 0),
      past = c.history(),
      mean = past.map(({ round, data }) => [round, num(data && data.mean, 0)]);
    const small = past.filter(({ data }) => data && data.writer === "small").length;
    host.append(
      say(
        "The " +
          (word(d.writer) === "small" ? "small" : "large") +
          " model wrote this token; nobody checked it. Mean entropy of the last positions: " +
          short(d.mean) +
          " nats, limit " +
          short(limit) +
          ". The small model wrote " +
          small +
          " of " +
          past.length +
          " so far.",
      ),
    );
    line(host, {
      name: "Mean entropy over the rounds",
      width: c.width,
      series: [
        { points: mean, end: short(d.mean) + " nats" },
        {
          points: mean.map(([x, y], i) => [x, y, past[i].data && past[i].data.writer === "small" ? "on" : ""]),
          dots: true,
        },
      ],
      limit,
      limitName: "limit",
    });
  }
  function combined(host, notes, c) {
    const d = notes[0] || {},
      tokens = ints(d.tokens).slice(0, 24),
      at = (name) => list(d[name], 24),
      asked = at("asked");
    host.append(
      say(
        "Each token follows a distribution made of both models. Under it: its probability for the large, the small, " +
          "and the two together.",
      ),
    );
    strip(
      host,
      tokens.map((tok, i) => ({
        text: c.label(tok, 10),
        cls: asked[i] === false ? "dra" : "acc",
        note: [at("large")[i], at("small")[i], at("combined")[i]].map(percent).join(" \u00b7 "),
      })),
      "Tokens and what each model thought of them",
    );
    if (asked.includes(false))
      host.append(say("Dotted: the small model was sure, so the large one was not asked there."));
  }
  function grade(host, notes, c) {
    const d = notes[0] || {},
      past = c.history().map(({ round, data }) => [round, num(data && data.grade, 0)]),
      least = num(d.least, 0),
      coin = d.coin === true,
      best = num(d.of, 9);
    host.append(
      say(
        "This step of " + int(d.length, 0) + " tokens was given " + short(d.grade) + " of " + short(best) + "; ",
        coin ? "with that chance a step is kept: " : "",
        d.passed === true
          ? (coin ? "it" : "that is enough, and it") + " was kept as it is."
          : (coin ? "it was not, so" : "too little, so") + " the target writes the step itself.",
      ),
    );
    line(host, {
      name: "Grades of the steps",
      width: c.width,
      series: [
        { points: past, dots: true },
        { points: past, cls: "thin", end: short(d.grade) },
      ],
      limit: coin ? undefined : least,
      limitName: coin ? "" : "least " + short(least),
      most: best,
    });
  }
  function step(host, notes, c) {
    const d = notes[0] || {};
    host.append(
      say(
        "Step " +
          (int(d.step, 0) + 1) +
          ", written by the " +
          (word(d.writer) === "small" ? "small model and kept whole." : "target itself."),
      ),
    );
    strip(
      host,
      ints(d.tokens)
        .slice(0, 64)
        .map((tok) => ({ text: c.label(tok, 12), cls: word(d.writer) === "small" ? "acc" : "fixed" })),
      "Tokens of the step",
    );
  }

  Object.assign(SV.lens, {
    fallback: { title: "Where the small model fell back", draw: fallback },
    rollback: { title: "What the large model took back", draw: rollback },
    switch: { title: "Whose turn it is", draw: turns },
    combined: { title: "Two opinions, one distribution", draw: combined },
    grade: { title: "The grade of a step", draw: grade },
    step: { title: "Step by step", draw: step },
  });
})();
