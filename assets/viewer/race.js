/* What a race comes to: who won, with its spread, in one sentence; whether the texts are the same; the ledger of passes. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText, span, tip, count, who } = SV.dom;
  const { verdict, firstDifference, why, over } = SV.verdict;
  const M = SV.metrics;
  const title = (lane) => SV.stage.titleOf(lane);
  class Race {
    constructor(board) {
      this.board = board;
      this.say = el("p", { class: "won extra", "aria-live": "polite", hidden: true });
      this.body = el("div", { class: "scroll" });
      this.notes = el("ul", { class: "parts extra", "aria-label": "Whether the texts are the same", hidden: true });
      this.root = el(
        "section",
        { class: "panel p-race extra", "aria-label": "Forward passes", hidden: true },
        (this.head = el(
          "div",
          { class: "phead" },
          el("h2", null, "Forward passes"),
          el("span", { class: "small quiet end" }, "what each method asked of the large model"),
        )),
        el("div", { class: "ledger" }, this.body),
      );
      this.last = 0;
    }

    /* v: {views: [{lane, k, m}], base, focus, moving, shown, open}; open: the table is on the screen. A run that moves is drawn
       twice a second, and no sentence about one run stays over another. */
    paint(v) {
      this.root.hidden = this.notes.hidden = !v.shown;
      if (!v.shown) {
        this.say.hidden = true;
        this.key = null;
        return;
      }
      const key = [
        v.open,
        who(v.focus),
        ...v.views.map(({ lane, k }) => who(lane) + ":" + k + ":" + over(lane) + lane.checks.length + title(lane)),
      ].join();
      const same =
        this.v &&
        v.views.length === this.v.views.length &&
        v.views.every(({ lane }, i) => lane === this.v.views[i].lane);
      if (key === this.key && same) return;
      const wait = v.moving && same && !v.fresh ? 480 - (performance.now() - this.last) : 0;
      if (wait > 0) {
        this.timer ??= setTimeout(() => {
          this.timer = null;
          this.board.soon();
        }, wait);
        return;
      }
      this.key = key;
      this.last = performance.now();
      this.v = v;
      const end = verdict(v.views.map((x) => x.lane)); /* also while a finished race is played again */
      setText(
        this.say,
        end
          ? end.sentence
          : v.views.some(({ lane }) => SV.serverFacts.is(lane))
            ? SV.messages.say("race.server.clock")
            : "Who was fastest, and by how much, is said when all lanes have ended.",
      );
      this.say.classList.toggle("wait", !end);
      this.say.hidden = false;
      if (v.open) this.ledger(v);
      this.paintDifferences(v);
    }

    ledger(v) {
      const most = Math.max(1e-9, ...v.views.map(({ m }) => m.parts.reduce((a, b) => a + b, 0)));
      const order = SV.batch.ranked(v.views.map((x) => x.lane)),
        many = order;
      const head = (k) =>
        el("th", { scope: "col", tabindex: 0 }, el("span", { class: "def" }, M.DEFINITIONS[k][0]), tip(k));
      const cell = (s) => el("td", null, s);
      const rows = v.views.map(({ lane, m }) =>
        el(
          "tr",
          null,
          el("th", { scope: "row" }, title(lane)),
          cell(String(m.passes ?? "\u2013")),
          cell(m.rows_per_pass === null ? "\u2013" : m.rows_per_pass.toFixed(1)),
          cell(String(m.tokens)),
          cell(m.passes === null ? "\u2013" : String(Math.max(0, m.tokens - m.passes))),
          cell(span(SV.serverFacts.is(lane) ? null : m.spread ? m.seconds : m.parts.reduce((a, b) => a + b, 0))),
          el("td", { class: "batch", hidden: !order.length }, totalsCell(lane, many)),
          el(
            "td",
            { class: "parts1" },
            el(
              "span",
              {
                class: "stack",
                role: "img",
                "aria-label": SV.shape.PARTS.map((p, i) => p + " " + span(m.parts[i])).join(", "),
              },
              SV.shape.PARTS.map((p, i) =>
                el("i", {
                  class: "s" + i,
                  title: p + " " + span(m.parts[i]),
                  css: { width: (m.parts[i] / most) * 100 + "%" },
                }),
              ),
            ),
          ),
        ),
      );
      const key = el(
        "span",
        { class: "keyrow" },
        ["draft", "verify", "judge", "cache", "other"].map((p, i) => el("span", null, el("i", { class: "s" + i }), p)),
      );
      if (!this.table) {
        this.table = el("tbody");
        this.body.append(
          el(
            "table",
            null,
            el(
              "thead",
              null,
              el(
                "tr",
                null,
                el("th", { scope: "col" }, el("span", { class: "small quiet" }, "Method")),
                head("rounds"),
                head("rows_per_pass"),
                el("th", { scope: "col" }, "Tokens"),
                head("saved"),
                el("th", { scope: "col" }, "Engine"),
                (this.batchHead = el("th", { scope: "col" }, SV.messages.say("batch.column"))),
                el(
                  "th",
                  { scope: "col", class: "parts1" },
                  el("span", { class: "small quiet" }, "Where the time went"),
                  key,
                ),
              ),
            ),
            this.table,
          ),
          SV.csv.key(() => SV.csv.lines(SV.csv.bare(SV.csv.read(this.table.parentElement)))),
        );
      }
      this.batchHead.hidden = !order.length;
      this.table.replaceChildren(...rows);
    }

    paintDifferences(v) {
      const out = [];
      for (const { lane } of v.views) {
        if (!v.base || lane === v.base || !lane.tokens.length) continue;
        if (SV.serverFacts.is(lane)) {
          out.push(el("li", null, el("b", null, title(lane)), serverComparison(lane, v.base)));
          continue;
        }
        const d = firstDifference(lane, v.base),
          word = (t) => el("bdi", { class: "mono" }, t ? SV.fold.label(lane, t.tok, 18) : "the end");
        const theirs = el("bdi", { class: "mono" }, d.theirs ? SV.fold.label(v.base, d.theirs.tok, 18) : "the end"),
          because = d.at === null ? "" : why(lane);
        out.push(
          el(
            "li",
            null,
            el("b", null, title(lane)),
            d.at === null
              ? over(lane) && over(v.base)
                ? d.cut
                  ? " agrees with plain decoding in all that both wrote before the stop: " +
                    count(d.same, "token") +
                    "."
                  : SV.messages.say("race.same", { tokens: count(d.same, "token") })
                : " so far the same text as plain decoding (" + count(d.same, "token") + ")."
              : [
                  SV.messages.say("race.differs", { at: String(d.at + 1) }),
                  word(d.mine),
                  " where plain has ",
                  theirs,
                  because ? " (" + because + ")." : ".",
                ],
            priceWords(lane, v.base),
          ),
        );
      }
      this.notes.replaceChildren(...out);
    }
  }
  /* Why a lane was faster or not: what its rounds give, and what they cost. */
  function priceWords(lane, base) {
    const cost = SV.timing.against(lane, base)?.named ? SV.price.of(lane, base) : null;
    if (!cost) return "";
    const values = {
      each: cost.each.toFixed(2),
      even: cost.even.toFixed(2),
      share: String(Math.round(100 * cost.share)),
    };
    return SV.messages.say("race.price", values);
  }
  /* What a lane wrote for all of several prompts, with its place among the lanes where times count. */
  function totalsCell(lane, ranking) {
    const all = SV.batch.totals(lane),
      place = ranking.findIndex((x) => x.lane === lane) + 1;
    if (!all) return "\u2013";
    const tokens = count(all.tokens, "token");
    return place
      ? SV.messages.say("batch.cell", { place: String(place), tokens, rate: SV.dom.rate(all.rate) })
      : tokens;
  }
  /* Another engine, and whose model it has is its owner's to say: texts are compared by their letters. */
  function serverComparison(lane, base) {
    const d = SV.serverFacts.firstDifference(lane, base);
    return d.at === null
      ? (over(lane) && over(base) ? " wrote" : " writes so far") +
          " the same text as plain decoding here: " +
          count(d.same, "letter") +
          " compared."
      : SV.messages.say("race.server.differs", { at: String(d.at + 1) });
  }

  SV.race = { Race, priceWords };
})();
