/* Heads that guess ahead: beams and what they share, a state turned by each guess, a path through independent guesses. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, count } = SV.dom;
  const { list, ints, nums, num, int, say, chip, bars, short } = SV.pictures;
  const field = (x, name) => (x && typeof x === "object" ? x[name] : undefined);
  const table = (rows) => el("div", { class: "lscroll" }, el("table", { class: "lgrid" }, rows));
  const head = (...kids) => el("th", { scope: "row" }, ...kids);
  const percent = (x) => Math.round(100 * (num(x) ?? 0)) + " %";

  /* The nodes of the round's accepted path that begin with these tokens: how many of them came true. */
  function kept(c, tokens) {
    let n = 0;
    for (const id of c.round.path) {
      const node = c.round.nodes[id];
      if (!node || node.tok !== tokens[n]) break;
      n++;
    }
    return n;
  }

  function beam(host, notes, c) {
    const d = notes[0] || {},
      beams = list(d.beams, 32),
      apart = int(d.apart, 0),
      nodes = int(d.nodes, 0);
    host.append(
      say(
        count(beams.length, "beam") + " of " + apart + " tokens in all. Beginnings that they share are checked once: ",
        count(nodes, "node") + " instead of " + apart + ". Tinted: what came true.",
      ),
      table(
        beams.map((one) => {
          const tokens = ints(field(one, "tokens"), 24),
            n = kept(c, tokens);
          return el(
            "tr",
            { class: n && n === c.round.path.length ? "now" : null },
            head(percent(field(one, "chance"))),
            tokens.map((t, i) => el("td", null, chip(c.label(t, 9), i < n ? "acc" : "q"))),
          );
        }),
      ),
    );
  }

  function regression(host, notes, c) {
    const d = notes[0] || {},
      tokens = ints(d.tokens, 16),
      moved = nums(d.moved, 16),
      gates = list(d.gates, 16);
    host.append(
      say(
        "Each head lets the token guessed before it turn the state. The bars say how far, as a share of its length: ",
        "near 0 the head guesses as if it had not seen the token.",
      ),
    );
    bars(host, {
      name: "How far each token turned the state",
      width: c.width,
      values: moved,
      labels: moved.map((_, i) => c.label(tokens[i], 8)),
      cls: (i) => (i ? c.verdict(first(c)[i - 1]) : ""),
    });
    host.append(
      say("The gate of each attention head, from \u22121 to 1:"),
      table(
        gates.map((row, i) =>
          el(
            "tr",
            null,
            head(c.label(tokens[i], 12)),
            nums(row, 32).map((x) => el("td", null, short(x))),
          ),
        ),
      ),
    );
  }

  /* The nodes of the tree's first path, from the root down. */
  function first(c) {
    const out = [];
    for (let at = -1; ; at = out[out.length - 1]) {
      const below = c.round.nodes.find((n) => n.parent === at && !n.probe);
      if (!below) return out;
      out.push(below.id);
    }
  }

  function lattice(host, notes, c) {
    const d = notes[0] || {},
      rows = list(d.rows, 16),
      plain = ints(d.plain, 16),
      path = ints(d.path, 16),
      scores = nums(d.scores, 16),
      changed = path.filter((at, i) => at !== plain[i]).length,
      most = Math.max(0, ...rows.map((r) => ints(field(r, "tokens"), 16).length)),
      line = path.map((at, i) => ints(field(rows[i], "tokens"), 16)[at]),
      right = kept(c, line);
    host.append(
      say(
        "A column is a position: top tokens of its head, best first, with their probabilities. Filled: the drafted path. ",
        changed
          ? "It leaves the heads' first choice at " + count(changed, "position") + "."
          : "It is the heads' first choice at every position.",
        " " +
          count(int(d.paths, 1), "path was checked", "paths were checked") +
          "; " +
          right +
          " of its tokens came true.",
      ),
      table([
        ...Array.from({ length: most }, (_, k) =>
          el(
            "tr",
            null,
            head(String(k + 1)),
            rows.map((r, i) => {
              const token = ints(field(r, "tokens"), 16)[k],
                on = path[i] === k;
              return el(
                "td",
                null,
                token === undefined ? "" : chip(c.label(token, 9), on ? (i < right ? "acc" : "m") : "q"),
                token === undefined ? "" : " " + percent(nums(field(r, "chances"), 16)[k]),
              );
            }),
          ),
        ),
        el(
          "tr",
          null,
          head("score"),
          scores.map((x) => el("td", null, short(x))),
        ),
      ]),
    );
  }

  function ahead(host, notes, c) {
    const d = notes[0] || {},
      rows = list(d.rows, 16),
      layers = ints(d.layers, 16),
      path = c.round.path.map((id) => (c.round.nodes[id] ? c.round.nodes[id].tok : -1)),
      where = [...new Set(layers)].map((x) => (x ? "layer " + x : "the first layer")).join(", ");
    host.append(
      say(
        rows.length
          ? "Guessed in the pass before, on rows that are no tokens: each line a step further ahead. Tinted: it came true."
          : SV.messages.say("lens.ahead.none"),
      ),
    );
    if (rows.length)
      host.append(
        table(
          rows.map((r, i) =>
            el(
              "tr",
              null,
              head("+" + (i + 1)),
              ints(field(r, "tokens"), 8).map((t, k) =>
                el(
                  "td",
                  null,
                  chip(c.label(t, 9), path[i] === t ? "acc" : "q"),
                  " " + percent(nums(field(r, "chances"), 8)[k]),
                ),
              ),
            ),
          ),
        ),
      );
    host.append(
      say(
        "This round's pass carries " +
          count(int(d.probes, 0), "such row") +
          " behind " +
          count(int(d.behind, 0), "token"),
        int(d.chains, 1) > 1 ? ", " + int(d.chains, 1) + " for each step" : "",
        where ? "; they enter at " + where + "." : ".",
        num(d.dropped) === null ? "" : " Before that " + count(int(d.dropped, 0), "candidate") + " were dropped.",
      ),
    );
  }

  function trigram(host, notes, c) {
    const rows = list((notes[0] || {}).rows, 16),
      right = kept(
        c,
        rows.map((r) => int(field(r, "tok"), -1)),
      );
    host.append(
      say(
        "What each guess of the first path read closely: the last three tokens, guesses among them. Tinted: it came true.",
      ),
      table(
        rows.map((r, i) =>
          el(
            "tr",
            null,
            ints(field(r, "tokens"), 3).map((t) => el("td", null, chip(c.label(t, 9), "m"))),
            head("\u2192"),
            el("td", null, chip(c.label(int(field(r, "tok"), -1), 9), i < right ? "acc" : "q")),
            el("td", null, percent(field(r, "chance"))),
          ),
        ),
      ),
    );
  }

  Object.assign(SV.lens, {
    trigram: { title: "The three tokens before each guess", draw: trigram },
    ahead: { title: "Guessed in the pass before", draw: ahead },
    beam: { title: "Beams and what they share", draw: beam },
    regression: { title: "The state, turned by each guess", draw: regression },
    lattice: { title: "The path through the guesses", draw: lattice },
  });
})();
