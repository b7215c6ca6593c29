/* Jacobi iteration. In decoding: a block of guesses, refined round by round, a row a round, a column a place of the output;
   a guess that equals what was finally written is final. Inside a drafter (XPress): a row a pass of its refiner. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, count } = SV.dom;
  const { int, ints, say, chip } = SV.pictures;
  const ROWS = 10,
    COLUMNS = 40;

  function draw(host, notes, c) {
    const past = c.history().slice(-ROWS),
      rows = past.map(({ round, data }) => ({
        round,
        block: ints(data && data.block, 64),
        carried: int(data && data.carried, 0),
        from: c.lane.rounds[round].upto ? c.lane.rounds[round].first : SV.fold.upto(c.lane, round),
      }));
    const last = rows[rows.length - 1];
    if (!last) return;
    const lo = Math.max(rows[0].from, last.from - 12),
      hi = Math.min(lo + COLUMNS, Math.max(...rows.map((r) => r.from + r.block.length)));
    host.append(
      say(
        "Every position of the block is guessed at once and refined by the next pass: a row is a round, a column a position. ",
        last.carried + " of " + last.block.length + " guesses were carried over from the pass before.",
      ),
    );
    const table = el(
      "table",
      { class: "lgrid" },
      rows.map((r) =>
        el(
          "tr",
          { class: r === last ? "now" : null },
          el("th", { scope: "row" }, String(r.round + 1)),
          Array.from({ length: Math.max(0, hi - lo) }, (_, k) => {
            const i = lo + k - r.from,
              tok = r.block[i],
              final = c.lane.tokens[lo + k];
            return el(
              "td",
              null,
              i < 0 || tok === undefined ? "" : chip(c.label(tok, 9), final && final.tok === tok ? "fixed" : "q"),
            );
          }),
        ),
      ),
    );
    host.append(
      el("div", { class: "lscroll" }, table),
      say("Solid: already what was finally written there. Faint: still changing."),
    );
  }

  function passes(host, notes, c) {
    const d = notes[0] || {},
      rows = (Array.isArray(d.rows) ? d.rows : []).slice(0, 17).map((row) => ints(row && row.tokens, 64)),
      changed = ints(d.changed, 16),
      last = rows[rows.length - 1];
    if (!last) return;
    const moved = changed.filter((n) => n > 0).length;
    host.append(
      say(
        "The first row is the block drafter\u2019s own block. ",
        moved ? count(moved, "pass", "passes") + " of the refiner changed it" : "No pass of the refiner changed it",
        changed.length && !changed[changed.length - 1] ? ", and a last one found it settled." : ".",
      ),
    );
    const table = el(
      "table",
      { class: "lgrid" },
      rows.map((row, i) =>
        el(
          "tr",
          { class: i === rows.length - 1 ? "now" : null },
          el("th", { scope: "row" }, i ? String(i) : "block"),
          last.map((final, k) =>
            el("td", null, row[k] === undefined ? "" : chip(c.label(row[k], 9), row[k] === final ? "fixed" : "q")),
          ),
        ),
      ),
    );
    host.append(
      el("div", { class: "lscroll" }, table),
      say("Solid: the token that was drafted there. Faint: replaced later."),
    );
  }

  SV.lens.refined = { title: "The block, pass by pass", draw: passes };
  SV.lens.grid = { title: "Guesses, round by round", draw };
})();
