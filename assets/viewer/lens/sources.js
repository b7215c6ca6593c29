/* Drafts out of stores, searches and several hands: what was found, where, and who put which node there. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { int, ints, nums, list, word, say, bars, strip, short } = SV.pictures;
  const real = (c) => c.round.nodes.filter((n) => !n.probe);

  function retrieved(host, notes, c) {
    const d = notes[0] || {};
    host.append(
      say(
        "The last " +
          count(int(d.n, 0), "token") +
          " stand at " +
          count(int(d.places, 0), "position") +
          " of the store " +
          word(d.source) +
          ". What follows there became " +
          count(int(d.nodes, 0), "node") +
          "; the most frequent continuations come first.",
      ),
    );
    SV.lens.match.draw(host, [{}], c);
  }
  function search(host, notes, c) {
    const d = notes[0] || {},
      visits = nums(d.visits, 48),
      priors = nums(d.priors, 48),
      nodes = real(c);
    host.append(
      say(
        int(d.iterations, 0) +
          " looks into a table of " +
          count(int(d.pairs, 0), "word pair") +
          ". The most visited positions became the draft.",
      ),
    );
    bars(host, {
      name: "Visits of each node",
      width: c.width,
      values: visits,
      labels: visits.map((_, i) => (nodes[i] ? c.label(nodes[i].tok, 8) : "")),
      cls: (i) => (nodes[i] ? c.verdict(nodes[i].id) : ""),
    });
    if (priors.length) host.append(say("Most likely before looking: " + short(Math.max(0, ...priors)) + "."));
  }
  function fused(host, notes, c) {
    const by = list((notes[0] || {}).by, 256).map((x) => word(x, 16)),
      nodes = real(c),
      tally = {};
    by.forEach((who, i) => {
      const t = (tally[who] ??= [0, 0]);
      t[0]++;
      if (nodes[i] && c.verdict(nodes[i].id) === "acc") t[1]++;
    });
    host.append(
      say(
        "Two drafts became one tree: ",
        Object.entries(tally)
          .map(([who, [n, ok]]) => who + " " + n + " (" + ok + " accepted)")
          .join(", ") + ".",
      ),
    );
    strip(
      host,
      nodes
        .slice(0, by.length)
        .map((n, i) => ({ text: c.label(n.tok, 12), cls: c.verdict(n.id), node: n.id, note: by[i] })),
      "Nodes and who drafted them",
    );
  }
  function neighbours(host, notes, c) {
    const d = notes[0] || {},
      places = ints(d.places, 12),
      like = nums(d.likeness, 12);
    host.append(say("The state that wrote the last token resembles these earlier positions most (cosine):"));
    bars(host, {
      name: "Similarity of the nearest positions",
      width: c.width,
      values: like,
      labels: places.map(String),
      most: 1,
      height: 104,
    });
    SV.lens.match.draw(host, [{}], c);
  }
  function backoff(host, notes, c) {
    const d = notes[0] || {},
      orders = ints(d.orders, 64),
      nodes = real(c);
    host.append(
      say(
        "How many earlier tokens each guess rests on; at most " +
          int(d.longest, 0) +
          ". Where the longer n-gram is unknown it backs off to a shorter one.",
      ),
    );
    bars(host, {
      name: "Order used for each token",
      width: c.width,
      values: orders,
      labels: orders.map((_, i) => (nodes[i] ? c.label(nodes[i].tok, 8) : "")),
      cls: (i) => (nodes[i] ? c.verdict(nodes[i].id) : ""),
      most: Math.max(int(d.longest, 1), ...orders, 1),
      height: 112,
    });
    SV.lens.match.draw(host, [{}], c);
  }
  function gate(host, notes, c) {
    const d = notes[0] || {};
    host.append(
      say(
        "Found " +
          int(d.found, 0) +
          " tokens after a match of " +
          int(d.matched, 0) +
          ", let through " +
          int(d.kept, 0) +
          ": as many as pay. Chance that the first is accepted " +
          short(d.first) +
          ", each next one " +
          short(d.next) +
          "; a row in the pass costs " +
          short(d.row) +
          " of a plain step" +
          (Number.isFinite(d.extra) ? ", having any " + short(d.extra) : "") +
          ".",
      ),
    );
    const past = c.history().map(({ round, data }) => [round, int(data && data.found, 0)]),
      kept = c.history().map(({ round, data }) => [round, int(data && data.kept, 0)]);
    SV.pictures.line(host, {
      name: "Found and let through",
      width: c.width,
      series: [
        { points: past, step: true, cls: "thin", end: "found" },
        { points: kept, step: true, end: int(d.kept, 0) === int(d.found, 0) ? "" : "kept" },
      ],
      height: 110,
    });
  }

  Object.assign(SV.lens, {
    retrieved: { title: "Found in a store", draw: retrieved, copies: true },
    search: { title: "Search", draw: search },
    fused: { title: "Two drafts in one tree", draw: fused },
    neighbours: { title: "Nearest positions", draw: neighbours, copies: true },
    backoff: { title: "N-grams and backing off", draw: backoff, copies: true },
    gate: { title: "What the gate let through", draw: gate },
  });
})();
