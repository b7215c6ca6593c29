/* Lab: many users at once. Plain decoding and methods that share passes meet the same arrivals, load by load; what each one
   brings, and the load at which speculation stops paying. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times, rate } = SpecViz.dom;
  const K = P.kit;
  const PLAIN = "autoregressive",
    FIRST = ["speculative", "smartspec", "tetris"],
    OFFERED = [...FIRST, "bass", "ems_sd"],
    STYLES = { [PLAIN]: "thin", speculative: "", smartspec: "dash", tetris: "long", bass: "dot", ems_sd: "mixed" };
  const LOADS = { users: "1, 2, 4, 8, 16", rates: "2, 4, 8, 16" };

  const ms = (s) => (K.finite(s) ? (s >= 1 ? s.toFixed(2) + " s" : (1000 * s).toPrecision(3) + " ms") : "\u2013");
  const both = (pair) => (Array.isArray(pair) ? ms(pair[0]) + " to " + ms(pair[1]) : "\u2013");
  const middle = (pair, i) => (Array.isArray(pair) && K.finite(pair[i]) ? pair[i] : null);
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

  function load(env) {
    const cards = env.ctx.catalogue || [],
      names = new Map(cards.map((c) => [c.key, K.say(c.title, 60)])),
      store = P.kept("load"),
      tell = K.status(),
      out = el("div", { class: "pn-load" });
    let kind = "users",
      report = null,
      charts = [],
      control = null;

    const loads = K.field({ label: "Loads, at most six", value: LOADS.users, most: 60 });
    const how = K.choice(
      "Arrivals",
      [
        ["users", "Users at once"],
        ["rates", "Requests/s"],
      ],
      kind,
      (v) => {
        kind = v;
        loads.input.value = LOADS[v];
      },
    );
    const ticks = OFFERED.filter((key) => names.has(key)).map((key) => {
      const input = el("input", { type: "checkbox", checked: FIRST.includes(key) });
      return { key, input, root: el("label", null, input, el("span", null, names.get(key))) };
    });
    const task = K.select({ label: "Tasks", options: [["", "all of the suite, in turn"]] });
    const requests = K.slider({ label: "Requests of each load", min: 8, max: 64, step: 8, value: 24, on() {} });
    const length = K.slider({
      label: "Longest answer",
      min: 8,
      max: 96,
      step: 8,
      value: 32,
      show: (v) => v + " tokens",
      on() {},
      help: "Lengths are drawn from half of this to it, the same for every method.",
    });
    const press = K.button("Measure", run, "primary"),
      stop = K.button("Stop", () => control?.abort());
    stop.disabled = true;
    const earlier = K.select({ label: "Kept in this browser", options: [], on: (i) => pick(store.read()[Number(i)]) });

    let asked = false;
    async function tasks() {
      if (asked || typeof env.ctx.ask !== "function") return;
      asked = true;
      const got = await Promise.resolve(env.ctx.ask("tasks", {})).catch(() => null);
      if (!Array.isArray(got)) return;
      for (const t of got.slice(0, 20))
        if (t && typeof t.task === "string")
          task.input.append(el("option", { value: t.task }, `${K.say(t.task, 40)} only`));
    }

    async function run() {
      const list = loads.value
        .split(/[,;\s]+/)
        .filter(Boolean)
        .map(Number)
        .filter(K.finite)
        .slice(0, 6);
      if (!list.length) {
        tell.set("Give at least one load.", "error");
        return;
      }
      control = new AbortController();
      stop.disabled = false;
      let last = null;
      const got = await K.request(
        env.ctx,
        "load",
        {
          [kind]: list,
          methods: [PLAIN, ...ticks.filter((t) => t.input.checked).map((t) => t.key)],
          tasks: task.value ? [task.value] : [],
          requests: requests.value,
          max_new_tokens: length.value,
        },
        {
          press,
          tell,
          signal: control.signal,
          busy: "Warming up\u2026",
          part: (p) => {
            if (!p || !Array.isArray(p.rows)) return;
            last = p;
            if (p.at) tell.set(where(p.at), "busy");
            show(p);
          },
        },
      );
      stop.disabled = true;
      const whole = got || (last && last.rows.length ? { ...last, at: undefined, stopped: true } : null);
      if (!whole) return;
      store.add(whole);
      shelf();
      show(whole);
    }
    const title = (key) => names.get(key) || K.say(key, 40);
    function where(at) {
      const n = K.finite(at.users)
        ? at.users + (at.users === 1 ? " user" : " users")
        : K.say(at.rate, 12) + " requests/s";
      return `${title(at.method)}, ${n}: ${K.say(at.done, 8)} of ${K.say(at.of, 8)} answered`;
    }

    function shelf() {
      const list = store.read();
      earlier.input.replaceChildren(
        ...list.map((x, i) => el("option", { value: String(i) }, new Date(x.at).toLocaleString("en-GB"))),
      );
      earlier.root.hidden = list.length < 2;
    }
    function pick(one) {
      if (one) show(one.answer, one.at);
    }

    const rows = () => report.rows.filter((r) => r && K.finite(r.goodput) && typeof r.method === "string").slice(0, 64);
    const at = (r) => (K.finite(r.users) ? r.users : r.rate);
    function show(got, when) {
      if (!Array.isArray(got.rows)) return;
      report = got;
      const list = rows(),
        methods = [...new Set(list.map((r) => r.method))];
      if (!list.length) return;
      for (const c of charts) c.stop();
      charts = CHARTS.map((c) => P.plot.frame(c.title, (w) => draw(c, w)));
      out.replaceChildren(
        ...said(got),
        P.plot.legend(methods.map((m) => ({ name: title(m), cls: STYLES[m] ?? "dot" }))),
        el(
          "div",
          { class: "pn-duo" },
          CHARTS.map((c, i) => el("div", null, el("h4", null, c.title), charts[i].root)),
        ),
        K.small("Lines of times: the median; the fainter line of the same kind above it: the 95th percentile."),
        table(list),
        foot(got, when),
      );
      for (const c of charts) c.paint();
    }
    function said(got) {
      const list = (Array.isArray(got.said) ? got.said : []).slice(0, 8).map((s) => K.say(s, 300));
      if (list.length)
        return [
          el(
            "div",
            { class: "pn-prose pn-pays" },
            list.map((s) => el("p", null, s)),
          ),
        ];
      return [
        K.small(
          got.stopped ? "Stopped: what was measured until then." : "Under way: lines move until each load is over.",
        ),
      ];
    }
    function draw(c, width) {
      const list = rows(),
        xs = list.map(at).filter(K.finite),
        far = c.far || c.of,
        top = Math.max(c.rule ? c.rule * 1.1 : 0, ...list.flatMap((r) => [c.of(r), far(r)]).filter(K.finite));
      const lines = (of, extra) =>
        [...new Set(list.map((r) => r.method))].map((m) => ({
          pts: list.filter((r) => r.method === m).map((r) => [at(r), of(r)]),
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
    const table = (list) =>
      K.table(
        [
          { name: "load" },
          { name: "method" },
          { name: "goodput", num: true },
          { name: "over plain", num: true },
          { name: "rows/s", num: true },
          { name: "first token", num: true },
          { name: "a token", num: true },
          { name: "in a round", num: true },
          { name: "drafted", num: true },
          { name: "accepted", num: true },
        ],
        list.map((r) => [
          K.say(r.load, 30),
          title(r.method),
          rate(r.goodput),
          K.finite(r.against_plain) ? times(r.against_plain) : "\u2013",
          K.finite(r.throughput) ? rate(r.throughput) : "\u2013",
          both(r.first_token),
          both(r.token_time),
          K.finite(r.batch) ? r.batch.toFixed(1) : "\u2013",
          K.finite(r.drafted) ? r.drafted.toFixed(1) : "\u2013",
          K.finite(r.accepted) ? Math.round(100 * r.accepted) + "%" : "\u2013",
        ]),
        "Times: median to 95th percentile. In a round: requests that shared a pass. Drafted: tokens a request and round.",
      );
    function foot(got, when) {
      const e = got.environment || {};
      return el(
        "div",
        { class: "pn-row pn-sum" },
        K.small(
          `${when ? "Measured " + new Date(when).toLocaleString("en-GB") + ", " : ""}${K.say(got.machine, 160)}. ` +
            `${K.say(e.requests, 8)} requests of each load, answers up to ${K.say(e.max_new_tokens, 8)} tokens.` +
            (e.interrupted || got.stopped ? " It was stopped before the end." : ""),
        ),
        K.button("Save as JSON", () =>
          P.io.save(
            "load.json",
            [JSON.stringify({ environment: got.environment, rows: got.rows, said: got.said || [] }, null, 1)],
            "application/json",
          ),
        ),
      );
    }

    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Under load",
        K.lead(
          "Many users share each pass, and a draft\u2019s rows no longer ride along for nothing: " +
            "find the load at which speculation stops paying here.",
        ),
      ),
      el(
        "div",
        { class: "pn-two" },
        el(
          "div",
          { class: "pn-box pn-controls" },
          how,
          loads.root,
          el(
            "fieldset",
            { class: "pn-ticks" },
            el("legend", null, "Beside plain decoding"),
            ticks.map((t) => t.root),
          ),
          task.root,
          requests.root,
          length.root,
          el("div", { class: "pn-row" }, press, stop),
          tell.root,
          earlier.root,
        ),
        el("div", { class: "pn-box" }, out),
      ),
    );
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        el("b", null, "Nothing measured yet"),
        "Every method meets the same requests, in turns of a quarter of a second. Press \u201cMeasure\u201d.",
      ),
    );
    shelf();
    pick(store.read()[0]);
    return {
      root,
      update: tasks,
      destroy() {
        control?.abort();
        for (const c of charts) c.stop();
      },
    };
  }

  (P.views = P.views || {}).load = load;
})();
