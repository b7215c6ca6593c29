/* Lab: how acceptance grew with the tokens that drafts learned from and with their sizes. Points were kept while the drafts here
   were trained; the lines are powers fitted to them, and beyond the last point a prediction. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el } = SpecViz.dom;
  const K = P.kit;
  const STYLES = ["", "dash", "long", "mixed", "thin"];
  const MOST = 16; /* drafts of a target */

  const short = (n) => (n >= 1e9 ? n / 1e9 + " G" : n >= 1e6 ? n / 1e6 + " M" : n >= 1e3 ? n / 1e3 + " k" : String(n));
  const brief = (n) => short(Number(n.toPrecision(3)));
  /* 1, 2, 5, 10, ... between two sizes, so few that their names do not touch. */
  function decades(min, max, room) {
    const all = [];
    for (let e = Math.floor(Math.log10(min)); e <= Math.log10(max); e++)
      for (const m of [1, 2, 5]) if (m * 10 ** e >= min && m * 10 ** e <= max) all.push(m * 10 ** e);
    const step = Math.max(1, Math.ceil(all.length / room));
    return all.filter((_, i) => i % step === 0);
  }
  /* A fit that predicts nothing (specviz/evidence/scaling.py) is not drawn. */
  const fit = (x) => (x && x.prediction && K.finite(x.a) && K.finite(x.b) && K.finite(x.most) && x.most > 0 ? x : null);
  /* An acceptance rate: at most 1, however far the line is drawn. */
  const at = (l, x) => Math.min(1, Math.max(0, l.a + l.b * Math.log(x)));
  const along = (l, from, to) =>
    Array.from({ length: 24 }, (_, i) => from * (to / from) ** (i / 23)).map((x) => [x, at(l, x)]);

  /* A target's report, whatever came: drafts with finite points, and their fits. */
  function parse(one, figure) {
    const found = (one.figures && one.figures[figure]) || {},
      each = found.each || {};
    const drafts = (Array.isArray(one.drafts) ? one.drafts : [])
      .slice(0, MOST)
      .map((d) => ({
        name: K.say(d.name, 60),
        size: d.parameters,
        fit: fit(each[d.name]),
        end: (found.sizes || {})[d.name],
        pts: (Array.isArray(d.points) ? d.points : [])
          .slice(0, 64)
          .map((p) => [p.tokens, p[figure]])
          .filter((p) => K.finite(p[0]) && p[0] > 0 && K.finite(p[1]))
          .sort((a, b) => a[0] - b[0]),
      }))
      .filter((d) => d.pts.length && K.finite(d.size) && d.size > 0);
    const shared = drafts.length > 1 ? begin(drafts.map((d) => d.name)) : 0;
    return {
      drafts: drafts.map((d, i) => ({ ...d, title: d.name.slice(shared) || d.name, cls: STYLES[i % STYLES.length] })),
      sizes: fit(found.parameters),
      tokens: K.finite(found.at_tokens) && found.at_tokens > 0 ? found.at_tokens : 0,
      said: Array.isArray(found.said) ? found.said : [],
    };
  }
  /* Letters up to the last dash that all names begin with. */
  function begin(names) {
    let n = 0;
    while (names.every((s) => n < s.length && s[n] === names[0][n])) n++;
    return names[0].slice(0, n).lastIndexOf("-") + 1;
  }

  function draw(width, got, over) {
    const xs = over === "tokens" ? got.drafts.flatMap((d) => d.pts.map((p) => p[0])) : got.drafts.map((d) => d.size);
    const fits = over === "tokens" ? got.drafts.map((d) => d.fit).filter(Boolean) : [got.sizes].filter(Boolean);
    const min = Math.min(...xs) * 0.8,
      max = Math.max(...xs.map((x) => x * 1.25), ...fits.map((l) => 4 * l.most)),
      top = Math.max(0.1, ...got.drafts.flatMap((d) => d.pts.map((p) => p[1])), ...fits.map((l) => at(l, 4 * l.most)));
    const lines = (l, from, cls, name) => [
      { pts: along(l, from, l.most), cls, name },
      { pts: along(l, l.most, 4 * l.most), cls: "dot" },
    ];
    const series =
      over === "tokens"
        ? got.drafts.flatMap((d) => [
            ...(d.fit ? lines(d.fit, d.pts[0][0], d.cls, d.title) : []),
            { pts: d.pts, bare: true, dots: 3.5, name: d.fit ? "" : d.title },
          ])
        : [
            ...(got.sizes ? lines(got.sizes, Math.min(...xs), "") : []),
            ...got.drafts.map((d) => ({
              pts: [[d.size, K.finite(d.end) ? d.end : d.pts[d.pts.length - 1][1]]],
              bare: true,
              dots: 4,
              tag: d.title,
            })),
          ];
    return P.plot.xy({
      width,
      height: 270,
      x: {
        min,
        max,
        log: true,
        at: decades(min, max, Math.max(3, width / 65)),
        show: short,
        name:
          over === "tokens"
            ? "tokens learned from (dotted: prediction)"
            : (got.tokens ? "parameters, at " + short(+got.tokens.toPrecision(2)) + " tokens" : "parameters") +
              " (dotted: prediction)",
      },
      y: { min: 0, max: Math.min(1, top * 1.1) },
      series,
      rules: fits.length ? [{ x: Math.max(...fits.map((l) => l.most)), name: "prediction" }] : [],
    });
  }

  function scaling(env) {
    const tell = K.status(),
      out = el("div"),
      again = K.button("Try again", ask),
      none = K.small("Reading what the drafts carry\u2026");
    let got = null,
      asked = false,
      figure = "",
      target = 0,
      charts = [];

    again.hidden = true;
    async function ask() {
      asked = true;
      const lane = env.lane() || env.lanes()[0];
      const answer = await K.request(env.ctx, "scaling", { name: lane ? lane.targetName : "" }, { tell });
      none.remove();
      again.hidden = Boolean(answer);
      if (!answer) return;
      got = answer;
      show();
    }

    function show() {
      const targets = (Array.isArray(got.targets) ? got.targets : []).filter((t) => t && typeof t.target === "string"),
        figures = Object.entries(got.figures || {}).slice(0, 4);
      for (const c of charts) c.stop();
      charts = [];
      if (!targets.length || !figures.length) {
        out.replaceChildren(
          K.small("No draft here carries points of its training. This command records them:"),
          el("pre", { class: "pn-code" }, "python -m specviz.training draft --data DIR"),
        );
        return;
      }
      figure = figure || figures[0][0];
      const one = targets[Math.min(target, targets.length - 1)],
        mine = parse(one, figure);
      const chart = (title, over) => {
        const made = P.plot.frame(
          title,
          (w) => draw(w, mine, over),
          () => SpecViz.save.own("Points kept in training, of drafts of " + one.target + "."),
        );
        charts.push(made);
        return el("div", null, el("h4", null, title), made.root);
      };
      const pick = K.select({
        label: "Drafts of",
        options: targets.map((t, i) => [String(i), K.say(t.target, 60)]),
        value: String(targets.indexOf(one)),
        on: (v) => {
          target = Number(v);
          show();
        },
      });
      const how = K.choice(
        "Acceptance at",
        figures.map(([key, name]) => [key, K.say(name, 30)]),
        figure,
        (v) => {
          figure = v;
          show();
        },
      );
      out.replaceChildren(
        el("div", { class: "pn-row" }, pick.root, how),
        mine.drafts.length
          ? el(
              "div",
              { class: "pn-duo" },
              chart("Acceptance over tokens", "tokens"),
              chart("Acceptance over sizes", "parameters"),
            )
          : K.small("No draft of this target carries points of its training."),
        el(
          "div",
          { class: "pn-prose" },
          [...mine.said, ...(Array.isArray(one.began) ? one.began : [])]
            .slice(0, 24)
            .map((s) => el("p", null, K.say(s, 300))),
        ),
        missing(one),
        mine.drafts.length ? points(mine) : "",
      );
      for (const c of charts) c.paint();
    }
    function missing(one) {
      const list = (Array.isArray(one.missing) ? one.missing : []).slice(0, 8);
      return list.length
        ? el(
            "div",
            null,
            K.small(SpecViz.messages.say("scaling.few")),
            el("pre", { class: "pn-code" }, list.map((s) => K.say(s, 200)).join("\n")),
          )
        : "";
    }
    const points = (mine) =>
      el(
        "details",
        { class: "pn-more" },
        el("summary", null, "All points"),
        K.table(
          [
            { name: "draft" },
            { name: "parameters", num: true },
            { name: "tokens", num: true },
            { name: "acceptance", num: true },
          ],
          mine.drafts.flatMap((d) => d.pts.map((p) => [d.name, brief(d.size), brief(p[0]), p[1].toFixed(3)])),
          "Share of the tried draft tokens that are accepted, replayed on held-out answers of the target.",
        ),
      );

    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "What training buys",
        K.lead(
          K.paper(
            "Acceptance grows with the logarithm of what a draft learned from, and of its size (Scylla, arXiv 2505.07858). " +
              "Does it here? Points were kept while these drafts were trained; lines a + b ln x are laid through them.",
          ),
        ),
      ),
      el("div", { class: "pn-box" }, none, tell.root, again, out),
      K.small(
        "The last point of a draft was taken after its learning rates had fallen, the others before: " +
          "it may lie above the line. Sizes are compared at the tokens that all drafts reached, on each draft's own line. " +
          "What lies beyond the points is a prediction and not a measurement.",
      ),
    );
    return {
      root,
      update() {
        if (!asked) ask();
      },
      destroy() {
        for (const c of charts) c.stop();
      },
    };
  }

  (P.views = P.views || {}).scaling = scaling;
})();
