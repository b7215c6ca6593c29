/* Jacobi decoding: a block of guesses, refined round by round. A row a round, a column a place of the output; a guess that
   equals what was finally written is final. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el } = SV.dom;
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

  SV.lens.grid = { title: "Guesses, round by round", draw };
})();
