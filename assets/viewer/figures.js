/* The figures, each with its definition on hover and focus: six cells for one method, a table for a race. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText, rate, times, pct, span, count, tip } = SV.dom;
  const dash = "\u2013";

  /* [what, how far it looked]: the engine's own check, else the greedy tokens of this lane against plain decoding's. */
  function certificate(lane, base) {
    if (SV.serverFacts.is(lane)) return serverCheck(lane, base);
    const c = lane.checks.filter((x) => ["greedy_equal", "near_tie", "diverged"].includes(x.kind)).pop();
    if (!c) return compared(lane, base);
    const d = c.detail || {};
    if (c.kind === "greedy_equal")
      return d.equal === false ? ["differs", "see the check record"] : ["identical", "token for token"];
    const at = Number.isFinite(d.at) ? "at token " + d.at : "",
      gap = Number.isFinite(d.margin) ? ", margin " + d.margin.toPrecision(2) : "";
    return c.kind === "near_tie" ? ["near-tie", at + gap] : ["diverged", (at || "not the same text") + gap];
  }

  function serverCheck(lane, base) {
    if (!base || !SV.verdict.over(base) || (lane.header?.sampling?.temperature ?? 1) > 0) return null;
    return SV.serverFacts.firstDifference(lane, base).at === null
      ? ["same text", "letter for letter, by another engine"]
      : ["another text", "another engine, maybe another model"];
  }
  function compared(lane, base) {
    if (!base || base === lane || !SV.verdict.over(base) || (lane.header?.sampling?.temperature ?? 1) > 0) return null;
    const d = SV.verdict.firstDifference(lane, base);
    if (d.at !== null) return ["differs", "at token " + (d.at + 1)];
    return d.cut
      ? [SV.messages.say("figures.same_so_far"), count(d.same, "token") + " compared, then stopped"]
      : ["identical", count(d.same, "token") + ", all compared"];
  }

  /* Whether a lane's figures at round k are those of all of its run, and will not change. */
  const whole = (lane, k) => SV.verdict.over(lane) && k >= lane.committed;

  /* The time to the first token, and how much of the prompt the cache of the turn before spared. */
  function first(lane, m) {
    const reused = lane.done?.totals?.reused;
    if (m.time_to_first_token === null) return "";
    return (
      ", the first after " +
      span(m.time_to_first_token) +
      (Number.isInteger(reused) && reused > 0 ? ` (${count(reused, "prompt token")} from the cache)` : "")
    );
  }

  const bare = (x) => (typeof x === "number" && Number.isFinite(x) ? Number(x.toPrecision(6)) : "");
  /* What a lane came to at its end, by column of a CSV file. */
  function finalFigures(lane, plain, runs) {
    const m = SV.metrics.of(lane, lane.committed, plain, runs),
      base = lane === plain,
      speed = base ? { value: 1, low: 1, high: 1, named: true } : m.speed,
      named = Boolean(speed?.named),
      replaced = SV.timing.replaced([lane]);
    return {
      method: SV.stage.titleOf(lane),
      tokens: bare(m.tokens),
      passes: bare(m.passes),
      seconds: bare(m.seconds),
      tokens_per_second: bare(m.tokens_per_second),
      tokens_per_second_low: bare(m.spread?.low),
      tokens_per_second_high: bare(m.spread?.high),
      speedup: named ? bare(speed.value) : "",
      speedup_low: named ? bare(speed.low) : "",
      speedup_high: named ? bare(speed.high) : "",
      counted: named ? "yes" : "no",
      replaced: bare(replaced.replaced),
      of: bare(replaced.of),
      tokens_per_pass: bare(m.block_efficiency),
      draft_yield: bare(m.draft_yield),
      acceptance_rate: bare(m.acceptance_rate),
      same_text: (lane.done && certificate(lane, plain)?.[0]) || "",
    };
  }

  /* How the accepted length goes along a longer answer: a draft may lose its way there. */
  function along(lane, k) {
    const list = SV.metrics.alongAnswer(lane, k);
    if (list.length < 2) return "";
    const values = list.map((x) => (x === null ? dash : x.toFixed(2))).join(", ");
    return SV.messages.say("figures.along", { tokens: String(SV.metrics.STRETCH), values });
  }

  class Figures {
    constructor() {
      this.cells = {};
      this.row = el(
        "dl",
        { class: "cellsrow" },
        ["tokens_per_second", "walltime_speedup", "block_efficiency", "draft_yield", "per_position", "verdicts"].map(
          (k) => this.cell(k),
        ),
      );
      this.table = el("div", { class: "scroll" });
      this.wrap = el(
        "div",
        { class: "rtable", hidden: true },
        this.table,
        SV.csv.key(() => this.csv()),
      );
      this.root = el("section", { class: "panel metrics", "aria-label": "Figures" }, this.row, this.wrap);
    }
    cell(key) {
      const c = {
        dt: el("dt", null, SV.metrics.DEFINITIONS[key][0]),
        v: el("span"),
        unit: el("small"),
        s: el("div", { class: "s" }),
      };
      c.big = el("div", { class: "v" }, c.v, c.unit);
      c.root = el(
        "div",
        { class: "metric", tabindex: 0 },
        c.dt,
        el("dd", null, key === "per_position" ? (c.pos = el("div", { class: "pos" })) : c.big, c.s),
        tip(key),
      );
      this.cells[key] = c;
      return c.root;
    }
    set(key, v, unit, s) {
      const c = this.cells[key];
      setText(c.v, v);
      setText(c.unit, unit);
      setText(c.s, s);
    }

    one(lane, m, k, plain) {
      this.row.hidden = false;
      this.wrap.hidden = true;
      const base = SV.metrics.isBaseline(lane),
        none = !m.drafted,
        sofar = m.tokens && !whole(lane, k) ? "so far" : "";
      this.set(
        "tokens_per_second",
        rate(m.tokens_per_second),
        sofar,
        m.spread
          ? "median of " + m.spread.runs + " runs, " + rate(m.spread.low) + " to " + rate(m.spread.high)
          : m.tokens
            ? count(m.tokens, "token") + " in " + span(m.seconds) + first(lane, m)
            : "after the prompt was read",
      );
      this.set(
        "walltime_speedup",
        base ? (m.tokens ? "1.00\u00d7" : dash) : times(m.walltime_speedup),
        base ? "" : sofar,
        m.speed && !m.speed.named
          ? SV.messages.say("timing.wide")
          : m.badges
            ? "a server's own clock: not compared"
            : m.baseline_tokens_per_second === null
              ? "no baseline in this trace"
              : base
                ? "this is the baseline"
                : "plain: " + rate(m.baseline_tokens_per_second) + " per second",
      );
      this.set(
        "block_efficiency",
        m.block_efficiency === null ? dash : m.block_efficiency.toFixed(2),
        sofar,
        (m.badges ? m.badges.passes + (m.passes === null ? "" : ": ") : "") +
          (m.passes === null ? "" : count(m.passes, "target pass", "target passes")) +
          (m.badges || base ? "" : along(lane, k)),
      );
      this.set(
        "draft_yield",
        none ? dash : pct(m.draft_yield),
        none ? "" : sofar,
        m.badges ? m.badges.draft : none ? "nothing drafted" : pct(m.acceptance_rate) + " of those examined",
      );
      this.positions(m);
      const c = lane.done && k >= lane.committed ? certificate(lane, plain) : null;
      setText(this.cells.verdicts.dt, SV.metrics.DEFINITIONS[c ? "certificate" : "verdicts"][0]);
      if (this.cert !== Boolean(c)) {
        this.cert = Boolean(c);
        this.cells.verdicts.root.lastChild.replaceWith(tip(c ? "certificate" : "verdicts"));
      }
      if (c) this.set("verdicts", c[0], "", c[1]);
      else
        this.set(
          "verdicts",
          m.checked ? String(m.agree) : dash,
          m.checked ? "of " + m.checked + " agree" : "",
          m.checked ? "accepted exactly when u < a" : none ? "no verdicts to check" : "no draws: greedy tests",
        );
    }
    positions(m) {
      const c = this.cells.per_position,
        list = m.per_position.slice(0, 12),
        key = list.map((p) => p.accepted).join() + "/" + m.rounds;
      if (key === this.posKey) return;
      this.posKey = key;
      c.pos.replaceChildren(
        ...(list.length
          ? list.map((p, i) => el("span", null, el("i", { css: { height: (p.rate || 0) * 19 + "px" } }), String(i + 1)))
          : [el("b", { css: { "font-size": "24px" } }, dash)]),
      );
      setText(
        c.s,
        list.length
          ? pct(list[0].rate) +
              " at 1" +
              (list.length > 1 ? ", " + pct(list[list.length - 1].rate) + " at " + list.length : "")
          : m.badges
            ? m.badges.per_position
            : "nothing drafted",
      );
    }

    /* level: the verdict of these lanes calls their difference noise, or the machine was busy: none of their times is the best.
       Nor is any figure while one of the lanes is under way: of two that are, the one ahead here may be behind at the end. */
    many(rows, plain, level) {
      this.row.hidden = true;
      this.wrap.hidden = false;
      this.shown = rows;
      this.plain = plain;
      const limited = rows.some((r) => SV.metrics.isBound(r.lane)),
        cols = [
          "tokens_per_second",
          "walltime_speedup",
          "block_efficiency",
          "draft_yield",
          "acceptance_rate",
          ...(limited ? ["of_possible"] : []),
          "certificate",
        ];
      const anyCert = rows.some((r) => r.lane.done && certificate(r.lane, plain)),
        key = [rows.length, anyCert, limited].join("/"); /* the heads name the last column */
      if (key !== this.tableKey) this.build(rows, cols, key, anyCert);
      const best = (f) =>
        Math.max(
          ...rows.filter((r) => !r.lane.error && !SV.metrics.isBound(r.lane)).map((r) => f(r.m) ?? -1),
        ); /* a lane that failed or is an upper bound wins nothing */
      const top = {
        0: best((m) => m.tokens_per_second),
        1: best((m) => m.walltime_speedup),
        2: best((m) => m.block_efficiency),
      };
      const share = (r) => {
        const of = SV.metrics.ofPossible(r, rows);
        return of === null ? dash : pct(of);
      };
      const ended = rows.every((r) => r.lane.error || whole(r.lane, r.k));
      rows.forEach((r, i) => {
        const m = r.m,
          base = SV.metrics.isBaseline(r.lane),
          cert = r.lane.done && r.k >= r.lane.committed ? certificate(r.lane, plain) : null;
        const vals = [
          m.tokens_per_second,
          base && m.tokens ? 1 : m.walltime_speedup,
          m.block_efficiency,
          m.draft_yield,
          m.acceptance_rate,
        ];
        const text = [
          rate(vals[0]),
          times(vals[1]),
          vals[2] === null ? dash : vals[2].toFixed(2),
          m.drafted ? pct(vals[3]) : dash,
          m.drafted && vals[4] !== null ? pct(vals[4]) : dash,
          ...(limited ? [share(r)] : []),
          cert ? cert[0] : m.checked && !anyCert ? m.agree + " of " + m.checked : dash,
        ];
        setText(this.tds[i][0], SV.stage.titleOf(r.lane));
        this.tds[i][0].classList.toggle("sofar", Boolean(m.tokens) && !whole(r.lane, r.k));
        text.forEach((t, j) => {
          setText(this.tds[i][j + 1], t);
          this.tds[i][j + 1].classList.toggle(
            "best",
            j < 3 &&
              !SV.metrics.isBound(r.lane) &&
              ended &&
              (j === 2 || !level) &&
              rows.length > 1 &&
              vals[j] !== null &&
              vals[j] === top[j],
          );
        });
      });
    }
    /* The final figures of these lanes as comma-separated values: bare numbers, an interval in columns of its own. */
    csv() {
      const lanes = this.shown.map((r) => r.lane),
        runs = SV.metrics.common(lanes.filter((l) => !SV.metrics.isBound(l))),
        rows = lanes.map((lane) => finalFigures(lane, this.plain, runs));
      return SV.csv.lines([Object.keys(rows[0]), ...rows.map((row) => Object.values(row))]);
    }
    build(rows, cols, key, anyCert) {
      this.tableKey = key;
      const head = el(
        "tr",
        null,
        el("th", { scope: "col" }, el("span", { class: "small quiet" }, "Method")),
        cols.map((c) => {
          const k = c === "certificate" && !anyCert ? "verdicts" : c;
          return el(
            "th",
            { tabindex: 0, scope: "col" },
            el("span", { class: "def" }, SV.metrics.DEFINITIONS[k][0]),
            tip(k),
          );
        }),
      );
      this.tds = rows.map(() => [el("td"), ...cols.map(() => el("td"))]);
      this.table.replaceChildren(
        el(
          "table",
          null,
          el("thead", null, head),
          el(
            "tbody",
            null,
            this.tds.map((r) => el("tr", null, r)),
          ),
        ),
      );
    }
  }

  SV.figures = { Figures, certificate, whole, finalFigures };
})();
