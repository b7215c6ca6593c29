/* Several continuations at once: titles and parts written side by side, drafts mixed in one pass, successors in a table. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, count } = SV.dom;
  const { list, ints, num, int, say, chip, short } = SV.pictures;
  const row = (c, name, tokens, cls) =>
    el(
      "div",
      { class: "lstrip" },
      name === null ? "" : el("em", { class: "lname" }, name),
      ints(tokens, 40).map((t) => chip(c.label(t, 12), cls)),
    );
  const tokensOf = (x) => (x && typeof x === "object" ? x.tokens : []);

  function branches(host, notes, c) {
    const d = notes[0] || {},
      titles = list(d.titles, 12),
      parts = list(d.parts, 12);
    host.append(
      say(
        "The answer is planned as " +
          count(titles.length, "title") +
          ", and their parts are written side by side in " +
          count(int(d.passes, 0), "shared pass", "shared passes") +
          ".",
      ),
    );
    titles.forEach((t, i) => host.append(row(c, "title " + (i + 1), tokensOf(t), "m")));
    parts.forEach((t, i) => host.append(row(c, "part " + (i + 1), tokensOf(t), "q")));
  }

  function superposed(host, notes, c) {
    const d = notes[0] || {},
      drafts = list(d.drafts, 12),
      chance = drafts.map((x) => num(x && x.chance, 0)),
      best = ints(tokensOf(drafts[0]), 64);
    host.append(
      say(
        count(drafts.length, "draft") +
          " were followed at once in " +
          count(int(d.passes, 0), "pass", "passes") +
          " of the large model; it read their mixture. The most probable one is verified.",
      ),
    );
    drafts.forEach((x, i) =>
      host.append(row(c, short(chance[i]), tokensOf(x), i ? "q" : best.length && c.round.path.length ? "m" : "m")),
    );
  }

  function successors(host, notes, c) {
    const d = notes[0] || {},
      rows = list(d.rows, 16);
    host.append(
      say(
        "For each token of the tree: the " +
          int(d.keep, 8) +
          " most probable successors by the target when it last read it. Bold: read anew in the last pass.",
      ),
    );
    const inPath = new Set(c.round.path.map((id) => c.round.nodes[id].tok));
    host.append(
      el(
        "div",
        { class: "lscroll" },
        el(
          "table",
          { class: "lgrid" },
          rows.map((r) =>
            el(
              "tr",
              { class: r && r.fresh === true ? "now" : null },
              el("th", { scope: "row" }, el("bdi", null, c.label(r && r.tok, 12))),
              ints(r && r.tokens, 16).map((t, i) =>
                el("td", null, chip(c.label(t, 9), (inPath.has(t) ? "acc" : "") + " rank" + Math.min(7, i))),
              ),
            ),
          ),
        ),
      ),
    );
  }

  function chunks(host, notes, c) {
    const d = notes[0] || {},
      kept = list(d.kept, 32),
      of = Math.max(1, int(d.of, 1)),
      read = int(d.read, 0);
    host.append(
      say(
        d.whole === true
          ? "The draft read the whole text."
          : "The draft read " +
              read +
              " of " +
              of +
              " tokens: the pieces of the prompt that resemble the question most, and the end.",
      ),
    );
    const ids = c.lane.header ? c.lane.header.prompt.ids.length : of,
      total = Math.max(1, of, ids);
    host.append(
      el(
        "div",
        { class: "lgauge", role: "img", "aria-label": "Pieces of the text that the draft read" },
        kept.map((k) => {
          const a = int(k && k.start, 0) / total,
            b = int(k && k.end, 0) / total;
          return el("i", {
            class: "got",
            title: "score " + short(k && k.score),
            css: { left: Math.max(0, a) * 100 + "%", width: Math.min(1, Math.max(0, b - a)) * 100 + "%" },
          });
        }),
      ),
    );
  }

  function enriched(host, notes, c) {
    const d = notes[0] || {},
      tests = list(d.tests, 24).filter((t) => t && typeof t === "object"),
      cell = (x) => el("td", { class: "r" }, short(x));
    host.append(
      say(
        "A drafted token is held against a distribution moved away from the draft's faults and towards the target; weight " +
          short(d.weight) +
          ".",
      ),
    );
    host.append(
      el(
        "div",
        { class: "lscroll log" },
        el(
          "table",
          null,
          el(
            "thead",
            null,
            el(
              "tr",
              null,
              ["token", "p target", "q draft", "p moved"].map((t, i) =>
                el("th", { scope: "col", class: i ? "r" : null }, t),
              ),
            ),
          ),
          el(
            "tbody",
            null,
            tests.map((t, i) =>
              el(
                "tr",
                null,
                el("td", null, chip(c.label(t.tok, 14), c.round.nodes[i] ? c.verdict(i) : "")),
                cell(t.p),
                cell(t.q),
                cell(t.moved),
              ),
            ),
          ),
        ),
      ),
    );
  }

  Object.assign(SV.lens, {
    branches: { title: "Parts written side by side", draw: branches },
    superposed: { title: "Drafts in superposition", draw: superposed },
    successors: { title: "Successor table", draw: successors },
    chunks: { title: "What the draft read", draw: chunks },
    enriched: { title: "An enriched distribution", draw: enriched },
  });
})();
