/* The rule's acceptance probability at the first position, next to that of the optimal rule. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, count } = SV.dom;
  const { num, int, say, line, short } = SV.pictures;
  const share = (x) => Math.min(1, Math.max(0, num(x, 0)));

  function draw(host, notes, c) {
    const d = notes[0] || {},
      a = share(d.accept),
      best = share(d.best);
    host.append(
      say(
        "With " +
          count(int(d.drafts, 0), "independent draft") +
          " at the first position this rule accepts one with chance " +
          short(a) +
          "; no rule could do better than " +
          short(best) +
          ". Left on the table: " +
          short(Math.max(0, best - a)) +
          ".",
      ),
    );
    host.append(
      el(
        "div",
        { class: "lgauge", role: "img", "aria-label": "Accepted " + short(a) + ", possible " + short(best) },
        el("i", { class: "got", css: { width: a * 100 + "%" } }),
        el("i", { class: "can", css: { left: a * 100 + "%", width: Math.max(0, best - a) * 100 + "%" } }),
        el("i", { class: "top", css: { left: best * 100 + "%" } }),
      ),
    );
    const past = c.history();
    if (past.length > 2)
      line(host, {
        name: "Chance of the rule and of the best rule, round by round",
        width: c.width,
        series: [
          { points: past.map(({ round, data }) => [round, share(data && data.best)]), cls: "thin", end: "possible" },
          {
            points: past.map(({ round, data }) => [round, share(data && data.accept)]),
            end: best - a < 0.08 ? "" : "this rule",
          },
        ],
        most: 1,
        height: 104,
      });
  }

  SV.lens.optimum = { title: "Against the best possible rule", draw };
})();
