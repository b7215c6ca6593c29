/* Lab: why it pays. The price of a pass by the rows it reads, with the current round's dot; and the formula's promise
   against the clock, with the difference named. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times, rate, span, pct, count } = SpecViz.dom;
  const K = P.kit,
    M = P.maths;

  /* A server's curve, whatever came: pairs of finite numbers, in order. */
  function given(got) {
    const rows = Array.isArray(got && got.rows) ? got.rows : [],
      secs = Array.isArray(got && got.seconds) ? got.seconds : [];
    const points = rows
      .map((r, i) => ({ rows: r, seconds: secs[i] }))
      .filter((p) => K.finite(p.rows) && p.rows >= 1 && K.finite(p.seconds) && p.seconds > 0)
      .slice(0, 64)
      .sort((a, b) => a.rows - b.rows);
    return points.length > 1
      ? {
          ...M.curve(points),
          machine: K.say(
            typeof got.machine === "string" ? got.machine : (got.machine && got.machine.machine) || "",
            120,
          ),
          draft: K.finite(got.draft_seconds) ? got.draft_seconds : null,
        }
      : null;
  }

  function cost(env) {
    const tell = K.status(),
      press = K.button("Measure here", measure, "primary");
    const caption = el("div", { class: "pn-prose" }),
      figs = el("div"),
      plot = P.plot.frame("Cost of a pass over the rows it reads", draw);
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "The price of a pass",
        K.lead(
          "One pass over five tokens costs far less than five passes, because the weights are read once. Speculative decoding lives on that gap; how wide it is depends on the machine.",
        ),
      ),
      el("div", { class: "pn-box" }, figs, plot.root, caption),
      el(
        "div",
        { class: "pn-row" },
        press,
        el("span", { class: "pn-small" }, "Times 1 to 64 rows on the machine this page runs on; a few seconds."),
        tell.root,
      ),
    );
    let here = null,
      lane = null,
      own = null;

    async function measure() {
      const got = await K.request(
        env.ctx,
        "cost_curve",
        { target: lane ? lane.targetName : "" },
        {
          press,
          tell,
          busy: "Measuring passes of 1 to 64 rows\u2026",
          part: (p) => {
            here = given(p) || here;
            paint();
          },
        },
      );
      if (got) here = given(got);
      if (got && !here) tell.set("The server's answer held no curve.", "error");
      paint();
    }
    const shown = () => here || own;
    function dot() {
      const w = env.where(),
        r = lane && (lane.rounds.find((x) => x.i === w.round) || lane.rounds[0]);
      return r || null;
    }
    function draw(width) {
      const c = shown(),
        r = dot();
      if (!c) return el("p", { class: "pn-small" }, "No passes yet.");
      const one = c.one,
        top = Math.max(2, c.to, r ? r.rows : 1),
        ys = c.points.map((p) => p.seconds / one),
        max = Math.max(2, ...ys, r && !here ? r.verify / one : 0) * 1.15;
      const line = Array.from({ length: 60 }, (_, i) => Math.exp((Math.log(top) * i) / 59)).map((x) => [
        x,
        c.at(x) / one,
      ]);
      const mark = r
        ? [
            {
              x: r.rows,
              y: r.verify / (here ? own?.one || one : one),
              name: `round ${r.i + 1}: ${count(r.rows, "row")}`,
            },
          ]
        : [];
      return P.plot.xy({
        width,
        height: 280,
        x: { min: 1, max: top, log: top > 24, name: "rows in one pass (the last token and the draft)" },
        y: { min: 0, max, show: (v) => v + "\u00d7" },
        series: [
          {
            pts: [1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
              .filter((x) => x <= max && x <= top)
              .map((x) => [x, x]),
            cls: "dot",
            tag: "one by one",
          },
          {
            pts: [
              [1, 1],
              [top, 1],
            ],
            name: "free",
            cls: "thin",
          },
          { pts: line, name: here ? "this machine" : "this trace", cls: "" },
          { pts: c.points.map((p) => [p.rows, p.seconds / one]), bare: true, dots: 3 },
        ],
        marks: mark,
      });
    }
    function paint() {
      const c = shown(),
        r = dot();
      plot.paint();
      if (!c) {
        figs.replaceChildren();
        return;
      }
      const at = (k) => ({
        label: count(k, "row"),
        value: times(c.at(k) / c.one),
        note: k > c.to ? "beyond what was measured" : span(c.at(k)),
      });
      figs.replaceChildren(
        K.figures([
          { label: "1 row", value: span(c.one), note: "plain decoding's pass" },
          at(5),
          at(16),
          ...(c.draft ? [{ label: "A draft step", value: times(c.draft / c.one), note: span(c.draft) }] : []),
        ]),
      );
      const list = [
        here
          ? `Measured now on ${here.machine || "the server's machine"}; the dot is this trace's round, in units of its own plain pass.`
          : `From the times of this trace${lane && lane.machine ? ", recorded on " + K.say(lane.machine, 90) : ""}: the median pass at each count of rows that occurred.`,
      ];
      if (r && own) {
        const x = r.verify / own.one;
        list.unshift(
          `Round ${r.i + 1} read ${count(r.rows, "row")} and kept ${count(r.n, "token")}: a pass at ${times(x)} the price of a plain one, for ${r.n} times its tokens.`,
        );
      }
      caption.replaceChildren(...list.map((s) => el("p", null, s)));
    }
    return {
      root,
      update() {
        const l = env.lane() || env.lanes()[0] || null;
        if (l !== lane) {
          lane = l;
          own = M.curveOf(env.lanes().filter((x) => l && x.targetName === l.targetName));
          if (lane && lane.curve && !here) own = given(lane.curve) || own;
        }
        paint();
      },
      destroy: () => plot.stop(),
    };
  }

  const WHY = {
    acceptance: [
      "Acceptance comes in runs",
      "The formula lets every token succeed with the same chance, each by itself. Real text has easy stretches and hard places, drafts of unequal length and, in a tree, second choices.",
    ],
    rows: [
      "A pass over several rows is dearer",
      "The formula takes a pass to cost the same however many rows it reads.",
    ],
    overhead: [
      "Work outside the models",
      "Judging, cache upkeep, planning: per round here, per token in plain decoding. The formula has none of it.",
    ],
  };
  const signed = (x) => (x >= 0 ? "+" : "\u2212") + Math.abs(x).toFixed(2);

  /* The formula as people write it, with this trace's numbers under it. Text and a fraction line, no images. */
  function formula(g) {
    const v = (x) => el("var", null, x);
    return el(
      "div",
      {
        class: "pn-formula",
        role: "img",
        "aria-label":
          "speed-up = (1 minus alpha to the power of gamma plus 1) over ((1 minus alpha) times (c gamma plus 1))",
      },
      el("span", null, "speed-up ="),
      el(
        "span",
        { class: "frac" },
        el("span", null, "1 \u2212 ", v("\u03b1"), el("sup", null, "\u03b3+1")),
        el("span", null, "(1 \u2212 ", v("\u03b1"), ") (", v("c"), v("\u03b3"), " + 1)"),
      ),
      g
        ? [
            el("span", null, "="),
            el(
              "span",
              { class: "frac num" },
              el(
                "span",
                null,
                "1 \u2212 " + g.alpha.toFixed(2),
                el("sup", null, (g.gamma + 1).toFixed(g.gamma % 1 ? 1 : 0)),
              ),
              el(
                "span",
                null,
                `(1 \u2212 ${g.alpha.toFixed(2)}) (${g.c.toFixed(2)} \u00b7 ${g.gamma.toFixed(g.gamma % 1 ? 1 : 0)} + 1)`,
              ),
            ),
            el("span", null, "= "),
            el("b", null, times(g.formula)),
          ]
        : null,
    );
  }

  /* The steps from the promise to the clock, as bars that hang from one another. */
  function steps(g) {
    const list = [{ name: "The formula promises", from: 0, to: g.formula, show: times(g.formula), end: true }];
    let at = g.formula;
    for (const s of g.steps) {
      list.push({ name: WHY[s.key][0], about: WHY[s.key][1], from: at, to: at + s.by, show: signed(s.by) });
      at += s.by;
    }
    list.push({ name: "The clock says", from: 0, to: g.measured, show: times(g.measured), end: true });
    const top = Math.max(1, ...list.map((x) => Math.max(x.from, x.to))) * 1.04,
      pc = (x) => (100 * Math.max(0, x)) / top + "%";
    return el(
      "div",
      { class: "pn-fall", role: "list", "aria-label": "From the formula to the measurement" },
      list.map((x) =>
        el(
          "div",
          { role: "listitem", class: x.end ? "whole" : x.to < x.from ? "down" : "up" },
          el("span", { class: "n" }, el("b", null, x.name), x.about ? el("small", null, x.about) : null),
          el(
            "span",
            { class: "t", "aria-hidden": "true" },
            el("i", { css: { left: pc(Math.min(x.from, x.to)), width: pc(Math.abs(x.to - x.from)) } }),
            el("u", { css: { left: pc(1) } }),
          ),
          el("span", { class: "v" }, x.show),
        ),
      ),
    );
  }

  function predict(env) {
    const root = el("div", { class: "pn-view" });
    let last = null;
    return {
      root,
      update() {
        const l = env.lane();
        if (l === last && root.firstChild) return;
        last = l;
        const title = K.head(
          "Predicted and measured",
          K.lead(
            "What the textbook formula promises for this run, what the clock said, and where the difference went.",
          ),
        );
        const g = l && M.gap(l);
        if (!g) {
          root.replaceChildren(
            title,
            env.empty(
              "",
              !l
                ? "Open or run a trace with a drafting method first."
                : !l.base
                  ? "This trace has no plain lane to measure against. Race the method against plain decoding."
                  : "This run is too short to compare.",
            ),
          );
          return;
        }
        const tree = M.shapeOf(l).width > 1;
        root.replaceChildren(
          title,
          env.laneLine(l),
          el(
            "div",
            { class: "pn-box" },
            formula(g),
            K.figures([
              {
                label: "\u03b1, acceptance",
                value: g.alpha.toFixed(2),
                note: tree ? "levels with a kept sibling / levels tried" : "accepted / tried",
              },
              { label: "\u03b3, draft length", value: g.gamma.toFixed(2), note: "levels drafted, mean of the rounds" },
              { label: "c, price of a draft step", value: g.c.toFixed(2), note: "in plain passes" },
              { label: "A pass with the draft", value: times(g.v), note: "in plain passes" },
            ]),
          ),
          el(
            "div",
            { class: "pn-box" },
            el("h3", null, "Where the difference went"),
            steps(g),
            K.small(
              "The three differences add up exactly: the formula's chance of keeping is replaced by the measured tokens per pass, then its free pass by the measured pass, then both sides by the engine's whole clock. Formula: Leviathan et al. 2023, arXiv 2211.17192.",
            ),
          ),
        );
      },
      destroy() {},
    };
  }

  Object.assign((P.views = P.views || {}), { cost, predict });
  P.parts = { ...(P.parts || {}), formula, WHY, givenCurve: given };
})();
