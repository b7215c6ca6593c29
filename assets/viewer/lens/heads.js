/* What is peculiar to a trained head: Jakiro's experts, FSPAD's two states, FR-Spec's vocabulary, SlimSpec's rank,
   Falcon's passes, Gumiho's levels. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { nums, int, say, bars, short } = SV.pictures;

  const row = (_, i) => (i ? String(i) : "root");

  function experts(host, notes, c) {
    const d = notes[0] || {},
      shares = nums(d.shares, 64),
      contrast = int(d.contrast, 0),
      first = shares.filter((x) => x > 0.5).length;
    host.append(
      say(
        "The first expert led in " + first + " of " + count(shares.length, "row") + ". ",
        contrast
          ? "Level " + contrast + " took no step: the experts' difference guessed it one token ahead."
          : "Every level took a step of its own.",
      ),
    );
    bars(host, {
      name: "The first expert's share of each row that drafted",
      width: c.width,
      values: shares,
      labels: shares.map(row),
      limit: 0.5,
      limitName: "both alike",
      most: 1,
    });
  }

  function halves(host, notes, c) {
    const alike = nums((notes[0] || {}).likeness, 64),
      least = alike.length ? Math.min(...alike) : 1;
    host.append(
      say(
        "Each row of the head gives one state that says the next token and one that is handed on. ",
        "The least alike pair had a cosine of " + short(least) + ".",
      ),
    );
    bars(host, {
      name: "How unlike the two states of each row are",
      width: c.width,
      values: alike.map((x) => Math.max(0, 1 - x)),
      labels: alike.map(row),
      most: 2,
    });
  }

  function rounds(host, notes, c) {
    const d = notes[0] || {},
      paths = nums(d.paths, 64),
      size = int(d.size, 2);
    host.append(
      say(
        count(paths.length, "step") +
          " of the head wrote " +
          count(size, "token") +
          " on each path they followed; " +
          count(int(d.nodes, 0), "node") +
          " were kept and " +
          c.round.path.length +
          " were accepted.",
      ),
    );
    bars(host, {
      name: "Paths followed in each step",
      width: c.width,
      values: paths,
      labels: paths.map((_, i) => "step " + (i + 1)),
    });
  }

  function frequent(host, notes, c) {
    const d = notes[0] || {},
      spoken = int(d.spoken, 0),
      all = int(d.vocabulary, 0),
      beyond = nums(d.beyond, 64);
    host.append(
      say(
        "The head chose among the " + count(spoken, "most frequent token") + " of " + all + ". ",
        beyond.length
          ? "Of this round's text it could not have drafted " + count(beyond.length, "token") + "."
          : "All that was written this round is among them.",
      ),
    );
    bars(host, {
      name: "The vocabulary",
      width: c.width,
      values: [spoken, Math.max(0, all - spoken)],
      labels: ["may draft", "left out"],
    });
  }

  function lowRank(host, notes, c) {
    const d = notes[0] || {},
      rank = int(d.rank, 0),
      hidden = int(d.hidden, 0);
    host.append(
      say(
        "The head\u2019s output matrix has rank " + rank + " of " + count(hidden, "dimension") + ". ",
        "It keeps " + short(d.kept) + " of the logits\u2019 variance; every token of the vocabulary can be drafted.",
      ),
    );
    bars(host, {
      name: "Dimensions of the output matrix",
      width: c.width,
      values: [rank, Math.max(0, hidden - rank)],
      labels: ["kept", "left out"],
    });
  }

  function serialParallel(host, notes, c) {
    const d = notes[0] || {},
      levels = nums(d.levels, 64),
      serial = int(d.serial, 0),
      later = Math.max(0, levels.length - serial);
    host.append(
      say(
        count(serial, "level") + " one after another, " + count(later, "level") + " at once. ",
        count(c.round.path.length, "token") + " accepted.",
      ),
    );
    bars(host, {
      name: "Nodes kept in each level",
      width: c.width,
      values: levels,
      labels: levels.map((_, i) => i + 1 + (i < serial ? " serial" : " parallel")),
    });
  }

  function borrowed(host, notes, c) {
    const d = notes[0] || {},
      places = nums(d.places, 16),
      shares = nums(d.shares, 16),
      layers = nums(d.layers, 16);
    host.append(
      say(
        "Queries over the target\u2019s own cache of " + count(int(d.cached, 0), "token") + ", ",
        "in " + (layers.length === 1 ? "layer " : "layers ") + layers.map((at) => String(at)).join(", ") + ". ",
        "Every step looks from position " + int(d.position, 0) + ". ",
        "Bytes of draft cache: " + int(d.cache_bytes, 0) + ".",
      ),
    );
    bars(host, {
      name: "Positions that the first step attended to most",
      width: c.width,
      values: shares,
      labels: places.map((at) => String(at)),
      mark: (i) => places[i] === int(d.position, -1),
      most: 1,
    });
  }

  SV.lens.borrowed = { title: "Borrowed keys and values", draw: borrowed };
  SV.lens.serial_parallel = { title: "Serial, then parallel", draw: serialParallel };
  SV.lens.low_rank = { title: "Low-rank output", draw: lowRank };
  SV.lens.experts = { title: "Two experts", draw: experts };
  SV.lens.halves = { title: "Two states of a row", draw: halves };
  SV.lens.frequent = { title: "The frequent tokens", draw: frequent };
  SV.lens.rounds = { title: "Several tokens a step of the head", draw: rounds };
})();
