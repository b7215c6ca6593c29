/* A modelled chip that accepts and rolls back by itself (HADES): what the round would take there, beside the measured round. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { span, count } = SV.dom;
  const { num, int, bars, say, short } = SV.pictures;
  const bounded = (x) => Math.min(1e9, Math.max(0, num(x, 0))); /* a trace may hold any number */

  /* Measured seconds of drafting and verification of a round; null without times. */
  function measured(round) {
    const d = round && round.draft,
      v = round && round.verify,
      long = (x) => (x && num(x.t0) !== null && num(x.t1) !== null && x.t1 >= x.t0 ? x.t1 - x.t0 : null);
    return long(v) === null ? null : (long(d) ?? 0) + long(v);
  }

  function draw(host, notes, c) {
    const d = notes[0] || {},
      round = bounded(d.draft) + bounded(d.verify) + bounded(d.sync),
      tokens = Math.max(1, int(d.tokens, 1)),
      here = measured(c.round);
    host.append(
      say(
        "A model, not a measurement. " +
          count(tokens, "token") +
          " in " +
          span(round) +
          (d.on_chip ? " on the chip" : " with the host") +
          (here === null ? ". " : "; measured here: " + span(here) + ". ") +
          "Milliseconds:",
      ),
    );
    const values = [round, bounded(d.host), tokens * bounded(d.plain)].map((x) => x * 1000);
    bars(host, {
      name: "Modelled milliseconds of this round",
      width: Math.min(c.width, 260),
      values,
      labels: [d.on_chip ? "chip" : "set", "host", "plain"],
      mark: (i) => i === 0,
      height: 116,
    });
    const all = c.history().map(({ data }) => data || {}),
      sum = (f) => all.reduce((t, x) => t + f(x), 0),
      made = sum((x) => Math.max(0, int(x.tokens, 0))) || 1,
      spent = sum((x) => bounded(x.draft) + bounded(x.verify) + bounded(x.sync));
    host.append(
      say(
        "So far, modelled: " +
          short(made / (spent || 1)) +
          " tokens per second (plain " +
          short(all.length / (sum((x) => bounded(x.plain)) || 1)) +
          "), " +
          short((1000 * sum((x) => bounded(x.joules))) / made) +
          " mJ per token (plain " +
          short((1000 * sum((x) => bounded(x.plain_joules))) / (all.length || 1)) +
          ").",
      ),
    );
  }

  SV.lens.chip = { title: "A modelled chip", draw };
})();
