/* Lab: how an answer under load looks: what follows from it in sentences, four charts over the load, and all figures. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times, rate } = SpecViz.dom;
  const K = P.kit;
  const STYLES = {
    autoregressive: "thin",
    speculative: "",
    smartspec: "dash",
    tetris: "long",
    bass: "dot",
    ems_sd: "mixed",
  };

  const WORDS = {
      thin: "thin line",
      "": "line",
      dash: "dashes",
      long: "long dashes",
      dot: "dots",
      mixed: "dashes and dots",
    },
    FAINT = " Fainter: the 95th percentile.";
  const ms = (s) => (K.finite(s) ? (s >= 1 ? s.toFixed(2) + " s" : (1000 * s).toPrecision(3) + " ms") : "\u2013");
  const both = (pair) => (Array.isArray(pair) ? ms(pair[0]) + " to " + ms(pair[1]) : "\u2013");
  const middle = (pair, i) => (Array.isArray(pair) && K.finite(pair[i]) ? pair[i] : NaN);
  const CHARTS = [
    { title: "Goodput, tokens written a second", of: (r) => r.goodput },
    { title: "Goodput over plain decoding\u2019s", of: (r) => r.against_plain, rule: 1 },
    {
      title: "Time to the first token, ms",
      of: (r) => 1000 * middle(r.first_token, 0),
      far: (r) => 1000 * middle(r.first_token, 1),
    },
    {
      title: "Time a token after that, ms",
      of: (r) => 1000 * middle(r.token_time, 0),
      far: (r) => 1000 * middle(r.token_time, 1),
    },
  ];

  /* The answer as {kids, charts}; nothing where nobody was answered yet. title(key): what a method is called. */
  function answer(got, when, title) {
    const list = got && Array.isArray(got.rows) ? rows(got) : [];
    if (!list.length) return null;
    const methods = [...new Set(list.map((r) => r.method))],
      lines = methods.map((m) => `${title(m)}: ${WORDS[STYLES[m] ?? "dot"]}`).join("; ") + ".",
      charts = CHARTS.map((c) =>
        P.plot.frame(
          c.title,
          (w) => draw(c, list, w),
          () => source(got, when),
          c.far ? lines + FAINT : lines,
        ),
      );
    const kids = [
      headline(list, title),
      ...said(got),
      P.plot.legend(methods.map((m) => ({ name: title(m), cls: STYLES[m] ?? "dot" }))),
      el(
        "div",
        { class: "pn-duo" },
        CHARTS.map((c, i) => el("div", null, el("h4", null, c.title), charts[i].root)),
      ),
      K.small("Lines of times: the median; the fainter line of the same kind above it: the 95th percentile."),
      table(list, title),
      list.some(doubtful) ? K.small(SpecViz.timing.remarks(list, doubtful, 0, 0)) : "",
      foot(got, when),
    ];
    return { kids, charts };
  }

  /* The methods of a load take turns, so a machine that was busy for one of them was so for all. */
  function rows(got) {
    const list = got.rows.filter((r) => r && K.finite(r.goodput) && typeof r.method === "string").slice(0, 64),
      busy = new Set(list.filter((r) => r.busy).map((r) => r.load));
    return list.map((r) => ({ ...r, busy: busy.has(r.load) }));
  }
  const at = (r) => (K.finite(r.users) ? r.users : r.rate);
  /* Who wrote most at the largest load, and how many prompts shared a pass there. */
  function headline(list, title) {
    const most = list.reduce((a, b) => (at(b) > at(a) ? b : a)),
      here = list.filter((r) => r.load === most.load),
      best = SpecViz.timing.clearBest(here.map((r) => ({ r, value: r.goodput })))?.r,
      id = here.some(doubtful) ? "load.uncounted" : best && here.length > 1 ? "load.best" : "load.level",
      of = id === "load.best" ? best : most;
    const words = {
      load: K.say(most.load, 30),
      title: title(of.method),
      goodput: rate(of.goodput),
      prompts: K.finite(of.batch) ? of.batch.toFixed(1) : "\u2013",
    };
    return el(
      "h3",
      { "data-message": id, "data-best": id === "load.best" ? best.method : "" },
      SpecViz.messages.say(id, words),
    );
  }
  function said(got) {
    const list = (Array.isArray(got.said) ? got.said : []).slice(0, 8).map((s) => el("p", null, K.say(s, 300)));
    return [
      list.length ? el("div", { class: "pn-prose pn-pays" }, list) : "",
      got.stopped ? K.small("Stopped: what was measured until then.") : "",
      got.at ? K.small("Under way: lines move until each load is over.") : "",
    ];
  }
  function draw(c, list, width) {
    const xs = list.map(at).filter(K.finite),
      far = c.far || c.of,
      top = Math.max(
        c.rule ? c.rule * 1.1 : 0,
        ...list
          .filter((r) => !doubtful(r))
          .flatMap((r) => [c.of(r), far(r)])
          .filter(K.finite),
      );
    const lines = (of, extra) =>
      [...new Set(list.map((r) => r.method))].map((m) => ({
        pts: list.filter((r) => r.method === m && !doubtful(r)).map((r) => [at(r), of(r)]),
        cls: ((STYLES[m] ?? "dot") + extra).trim(),
        dots: extra ? 0 : 3,
      }));
    const least = Math.min(...xs),
      most = Math.max(...xs);
    return P.plot.xy({
      width,
      height: 220,
      x: {
        min: least,
        max: most > least ? most : least * 2,
        log: least >= 1,
        name: K.finite(list[0].users) ? "users at once" : "requests a second",
      },
      y: { min: 0, max: (top || 1) * 1.08 },
      series: [...(c.far ? lines(c.far, " faint") : []), ...lines(c.of, "")],
      rules: c.rule ? [{ y: c.rule, name: "plain decoding" }] : [],
    });
  }
  /* Goodput over plain decoding's cannot exceed what a round gives a request: the drafted tokens it keeps, and one. */
  const doubtful = (r) =>
    Boolean(r.busy) ||
    (K.finite(r.drafted) &&
      K.finite(r.accepted) &&
      !SpecViz.timing.plausible(r.against_plain, 1 + r.drafted * r.accepted));
  const mark = (r, text) => (doubtful(r) ? K.unnamed() : text);

  /* Of each load the method with the largest goodput first: [row, place]. */
  const ranked = (list) =>
    [...new Set(list.map((r) => r.load))].flatMap((load) =>
      list
        .filter((r) => r.load === load)
        .sort((a, b) => b.goodput - a.goodput)
        .map((r, i) => [r, i + 1]),
    );
  const table = (list, title) =>
    K.table(
      [
        { name: "load" },
        { name: "rank", num: true },
        { name: "method" },
        { name: "goodput", num: true },
        { name: "over plain", num: true },
        { name: "rows/s", num: true },
        { name: "first token", num: true },
        { name: "a token", num: true },
        { name: "prompts at once", num: true },
        { name: "drafted", num: true },
        { name: "accepted", num: true },
      ],
      ranked(list).map(([r, place]) => [
        K.say(r.load, 30),
        String(place),
        title(r.method).replace(/ \(.*/, ""),
        mark(r, rate(r.goodput)),
        K.finite(r.against_plain) ? mark(r, times(r.against_plain)) : "\u2013",
        K.finite(r.throughput) ? mark(r, rate(r.throughput)) : "\u2013",
        mark(r, both(r.first_token)),
        mark(r, both(r.token_time)),
        K.finite(r.batch) ? r.batch.toFixed(1) : "\u2013",
        K.finite(r.drafted) ? r.drafted.toFixed(1) : "\u2013",
        K.finite(r.accepted) ? Math.round(100 * r.accepted) + "%" : "\u2013",
      ]),
      "Times: median to 95th percentile. Prompts at once: requests that shared a pass, on average. " +
        "Drafted: tokens a request and round.",
    );
  function measured(got, when) {
    const e = got.environment || {};
    return (
      `${when ? "Measured " + new Date(when).toLocaleString("en-GB") + ", " : ""}${K.say(got.machine, 160)}. ` +
      `${K.say(e.requests, 8)} requests of each load, answers up to ${K.say(e.max_new_tokens, 8)} tokens.` +
      (e.interrupted || got.stopped ? SpecViz.messages.say("load.interrupted") : "")
    );
  }
  const source = (got, when) => SpecViz.save.own(measured(got, when));
  function foot(got, when) {
    return el(
      "div",
      { class: "pn-row pn-sum" },
      K.small(measured(got, when)),
      K.button("Save as JSON", () =>
        P.io.save(
          "load.json",
          [JSON.stringify({ environment: got.environment, rows: got.rows, said: got.said || [] }, null, 1)],
          "application/json",
        ),
      ),
    );
  }

  P.loads = { answer };
})();
