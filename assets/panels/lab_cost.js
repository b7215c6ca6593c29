/* Lab: why it pays. The price of a pass by the rows it reads, with the current round's dot. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times, span, count } = SpecViz.dom;
  const K = P.kit,
    M = P.maths;

  /* A server's curve, whatever came: pairs of finite numbers, in order. */
  function parse(got) {
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
      plot = P.plot.frame("Cost of a pass over the rows it reads", draw, () =>
        here
          ? SpecViz.save.own("Measured on the machine this page runs on" + (lane ? ", " + lane.targetName : "") + ".")
          : env.source(),
      );
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "The price of a pass",
        K.lead(
          "One pass over five tokens costs far less than five passes, because the weights are read once. " +
            "Speculative decoding lives on that gap; how wide it is depends on the machine.",
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
            here = parse(p) || here;
            paint();
          },
        },
      );
      if (got) here = parse(got);
      if (got && !here) tell.set("The server's answer held no curve.", "error");
      paint();
    }
    const shown = () => here || own;
    /* Why the trace's own times do not count, as a message's identifier, or "". */
    const doubt = () => (lane && lane.doubt) || "";
    function dot() {
      const w = env.where(),
        r = lane && !doubt() && (lane.rounds.find((x) => x.i === w.round) || lane.rounds[0]);
      return r || null;
    }
    function draw(width) {
      const c = shown(),
        r = dot();
      if (!c) return el("p", { class: "pn-small" }, "No passes yet.");
      const one = c.one,
        top = Math.max(2, c.to, r ? r.rows : 1),
        ys = c.points.map((p) => p.seconds / one),
        dotAt = r ? r.verify / (here ? own?.one || one : one) : 0,
        max = Math.max(2, ...ys, dotAt) * 1.15;
      const line = Array.from({ length: 60 }, (_, i) => Math.exp((Math.log(top) * i) / 59)).map((x) => [
        x,
        c.at(x) / one,
      ]);
      const mark = r
        ? [
            {
              x: r.rows,
              y: dotAt,
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
      plot.root.hidden = !here && Boolean(doubt()); /* a curve of times that do not count */
      plot.paint();
      if (!c) {
        figs.replaceChildren();
        return;
      }
      const at = (k) => ({
        label: count(k, "row"),
        value: times(c.at(k) / c.one),
        timed: true,
        note: k > c.to ? "beyond what was measured" : span(c.at(k)),
      });
      figs.replaceChildren(
        K.figures(
          [
            { label: "1 row", value: span(c.one), note: "plain decoding's pass", timed: true },
            at(5),
            at(16),
            ...(c.draft
              ? [{ label: "A draft step", value: times(c.draft / c.one), note: span(c.draft), timed: true }]
              : []),
          ],
          here ? "" : doubt(),
        ),
      );
      const list = [
        here
          ? `Measured now on ${here.machine || "the server's machine"}; the dot is this trace's round, in ` +
            "units of its own plain pass."
          : "From the times of this " +
            `trace${lane && lane.machine ? ", recorded on " + K.say(lane.machine, 90) : ""}: the median pass ` +
            "at each count of rows that occurred.",
      ];
      if (r && own) {
        const x = r.verify / own.one;
        list.unshift(
          `Round ${r.i + 1} read ${count(r.rows, "row")} and kept ${count(r.n, "token")}: a pass at ` +
            `${times(x)} the price of a plain one, for ${r.n} times its tokens.`,
        );
      }
      caption.replaceChildren(
        ...(doubt() ? [el("p", { class: "pn-doubt" }, SpecViz.messages.say(doubt()))] : []),
        ...list.map((s) => el("p", null, s)),
      );
    }
    return {
      root,
      update() {
        const l = env.lane() || env.lanes()[0] || null;
        if (l !== lane) {
          lane = l;
          own = M.curveOf(env.lanes().filter((x) => l && x.targetName === l.targetName));
          if (lane && lane.curve && !here) own = parse(lane.curve) || own;
        }
        paint();
      },
      destroy: () => plot.stop(),
    };
  }

  (P.views = P.views || {}).cost = cost;
})();
