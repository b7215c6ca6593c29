/* A modelled chip that accepts and rolls back by itself (HADES): what the round would take there, beside the measured round. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { span, count } = SV.dom;
  const { num, int, bars, say, short } = SV.pictures;
  const seconds = (x) => Math.max(0, num(x, 0));

  /* Measured seconds of drafting and verification of a round; null without times. */
  function measured(round) {
    const d = round && round.draft,
      v = round && round.verify,
      long = (x) => (x && num(x.t0) !== null && num(x.t1) !== null && x.t1 >= x.t0 ? x.t1 - x.t0 : null);
    return long(v) === null ? null : (long(d) ?? 0) + long(v);
  }

  function draw(host, notes, c) {
    const d = notes[0] || {},
      round = seconds(d.draft) + seconds(d.verify) + seconds(d.sync),
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
    const values = [round, seconds(d.host), tokens * seconds(d.plain)].map((x) => x * 1000);
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
      spent = sum((x) => seconds(x.draft) + seconds(x.verify) + seconds(x.sync));
    host.append(
      say(
        "So far, modelled: " +
          short(made / (spent || 1)) +
          " tokens per second (plain " +
          short(all.length / (sum((x) => seconds(x.plain)) || 1)) +
          "), " +
          short((1000 * sum((x) => num(x.joules, 0))) / made) +
          " mJ per token (plain " +
          short((1000 * sum((x) => num(x.plain_joules, 0))) / (all.length || 1)) +
          ").",
      ),
    );
  }

  SV.lens.chip = { title: "A modelled chip", draw };
})();
