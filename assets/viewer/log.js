/* The log: this round's tests and the rounds near it as tables; also the text alternative of everything that is drawn. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, f3, span, count } = SV.dom;
  const WORD = { accepted: "accepted", rejected: "rejected", skipped: "not examined" };
  const ROWS = 60,
    NEAR = 24;

  function table(head, rows, right) {
    return el(
      "table",
      null,
      el(
        "thead",
        null,
        el(
          "tr",
          null,
          head.map((t, i) => el("th", { class: right(i) ? "r" : null, scope: "col" }, t)),
        ),
      ),
      el(
        "tbody",
        null,
        rows.map(({ cells, ...attrs }) =>
          el(
            "tr",
            attrs,
            cells.map((c, i) =>
              el(
                "td",
                { class: (right(i) ? "r " : "") + (i === 1 ? "mono" : "") || null },
                i === 1 ? el("bdi", null, String(c)) : String(c),
              ),
            ),
          ),
        ),
      ),
    );
  }

  function log(v) {
    const r = v.round,
      card = el("div", { class: "card log", tabindex: 0 });
    if (!r) return card;
    const rows = [];
    for (const id of r.tests.slice(0, ROWS)) {
      const j = r.judges.get(id),
        n = r.nodes[id];
      if (n && v.phase >= 3)
        rows.push({
          "data-node": id,
          class: v.sel === id ? "sel" : null,
          cells: [n.depth, SV.fold.label(v.lane, n.tok), f3(j.p), f3(j.q), f3(j.a), f3(j.u), WORD[j.verdict]],
        });
    }
    const skipped = r.nodes.length - r.tests.length;
    if (r.commit && v.phase >= 4)
      rows.push({
        "data-node": "tail",
        class: v.sel === "tail" ? "sel" : null,
        cells: [
          "tail",
          SV.fold.label(v.lane, r.commit.tail.tok),
          f3(r.commit.tail.p),
          "",
          "",
          "",
          SV.nodes.TAILS[r.why] || r.why,
        ],
      });
    card.append(
      el(
        "div",
        null,
        el("b", null, "This round"),
        skipped > 0 && v.phase >= 3
          ? el("span", { class: "quiet" }, "  " + skipped + " drafted tokens were never examined")
          : "",
      ),
      ...SV.csv.under(table(["depth", "token", "p", "q", "a", "u", "verdict"], rows, (i) => i > 1 && i < 6)),
    );
    card.append(
      el("b", null, "Rounds near it"),
      ...SV.csv.under(rounds(v)),
      el("p", { class: "note" }, threads(v.lane)),
    );
    return card;
  }

  /* How many of the processor's threads computed a live run, and why; "" where its trace does not record it. */
  function threads({ header, checks }) {
    const { threads: n, pass_seconds: pass } = (header && header.env) || {};
    if (!(n > 0 && pass > 0)) return "";
    const turned = checks.filter((c) => c.kind === "threads" && c.detail).pop()?.detail;
    return (
      SV.messages.say("log.threads", { threads: count(n, "thread"), time: span(pass) }) +
      SV.messages.say("log.threads.why") +
      (turned
        ? SV.messages.say("log.threads.again", {
            threads: count(turned.threads, "thread"),
            before: String(turned.before),
          })
        : "")
    );
  }
  function rounds(v) {
    const lane = v.lane,
      k = Math.min(lane.committed, v.k),
      hi = Math.min(k, Math.max(NEAR, v.round.i + NEAR / 2)),
      rows = [];
    for (let i = Math.max(0, hi - NEAR); i < hi; i++) {
      const r = lane.rounds[i];
      const text = lane.tokens
        .slice(r.first, r.upto)
        .map((t) => SV.text.joined(t.parts))
        .join("");
      rows.push({
        "data-round": i,
        class: i === v.round.i ? "sel" : null,
        cells: [
          i + 1,
          SV.text.label(SV.text.visible(text), 34),
          r.nodes.length,
          r.path.length,
          SV.nodes.TAILS[r.why] || r.why,
          span(SV.fold.endOf(lane, i) - SV.fold.startOf(lane, i)),
        ],
      });
    }
    return table(["round", "text", "drafted", "kept", "then", "engine"], rows, (i) => i === 2 || i === 3 || i === 5);
  }

  SV.log = { log, threads };
})();
