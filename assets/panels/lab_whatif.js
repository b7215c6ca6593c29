/* Lab: what if? A recorded run with other settings, worked out in the page: no model, no server. What a recording cannot
   know is said next to the figures, and shown as a range instead of a guess. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText, times, rate, span, count } = SpecViz.dom;
  const K = P.kit,
    M = P.maths;

  const range = (a, b, show) => (show(a) === show(b) ? show(a) : `${show(a)} to ${show(b)}`);

  function view(env) {
    const root = el("div", { class: "pn-view" });
    let lane = null,
      set = null,
      shape = null,
      curve = null,
      plot = null,
      out = {};

    function build() {
      shape = M.shapeOf(lane);
      curve = M.curveOf(lane.base ? [lane, lane.base] : [lane]);
      set = { gamma: shape.depth, width: shape.width, price: 1 };
      const deep = shape.chain ? Math.min(24, Math.max(8, shape.depth * 2)) : shape.depth;
      out = {
        gamma: K.slider({
          label: "Draft length",
          min: 1,
          max: deep,
          value: set.gamma,
          show: (v) => count(v, "token"),
          on: (v) => {
            set.gamma = v;
            paint();
          },
          help: `recorded: ${shape.depth}`,
        }),
        width:
          shape.width > 1
            ? K.slider({
                label: "Siblings at a place",
                min: 1,
                max: shape.width,
                value: set.width,
                on: (v) => {
                  set.width = v;
                  paint();
                },
                help: `recorded: up to ${shape.width}`,
              })
            : null,
        price: K.slider({
          label: "Price of a draft step",
          min: -3,
          max: 4,
          step: 0.25,
          value: 0,
          show: (v) => times(2 ** v),
          on: (v) => {
            set.price = 2 ** v;
            paint();
          },
          help: "0.50\u00d7: half the price, and just as right",
        }),
        longer: el("p", { class: "pn-pays pn-longer" }),
        figs: el("div", { "aria-live": "polite" }),
        say: el("div", { class: "pn-prose" }),
        check: K.small(),
      };
      const reset = K.button(
        "As recorded",
        () => {
          set = { gamma: shape.depth, width: shape.width, price: 1 };
          out.gamma.set(set.gamma);
          out.width?.set(set.width);
          out.price.set(0);
          paint();
        },
        "quietly",
      );
      plot?.stop();
      plot = P.plot.frame("Speed over the draft length", draw, () => ["Computed from this run:", ...env.source()]);
      root.replaceChildren(
        K.head(
          "What if?",
          K.lead(
            "Give this recorded run a shorter draft, a smaller tree or a costlier draft model, and see what it " +
              "would have cost. No model runs.",
          ),
        ),
        env.laneLine(lane),
        K.twoColumns(
          [out.gamma.root, out.width && out.width.root, out.price.root, reset],
          [out.longer, out.figs, plot.root],
        ),
        K.box("What this can know, and what it cannot", out.say, out.check),
      );
      paint();
      plot.paint();
    }

    const model = (s) => M.whatIf(lane, s, curve.at);
    const plain = () => lane.base && lane.base.metrics.tokens_per_second;

    function paint() {
      const r = model(set),
        p = plain(),
        measured = lane.metrics.tokens_per_second;
      const speed = p ? range(r.low.rate / p, r.high.rate / p, times) : "\u2013";
      out.figs.replaceChildren(
        K.figures(
          [
            {
              label: "Speed-up",
              value: speed,
              note: !p ? "the trace has no plain lane" : lane.doubt ? "" : `recorded: ${times(measured / p)}`,
              strong: true,
              timed: true,
            },
            {
              label: "Tokens per target pass",
              value: range(r.low.tau, r.high.tau, (x) => x.toFixed(2)),
              note: `recorded: ${(lane.tokens / lane.rounds.length).toFixed(2)}`,
            },
            {
              label: "Target passes",
              value: range(r.high.rounds, r.low.rounds, String),
              note: `recorded: ${lane.rounds.length}`,
            },
            {
              label: "One round",
              value: span(r.perRound),
              note: `${r.rows.toFixed(r.rows % 1 ? 1 : 0)} rows in the pass`,
              timed: true,
            },
          ],
          lane.doubt,
        ),
      );
      out.say.replaceChildren(...limitations(r).map((s) => el("p", null, s)));
      const as = model({ gamma: shape.depth, width: shape.width, price: 1 });
      setText(
        out.check,
        lane.doubt
          ? ""
          : SpecViz.messages.say("whatif.check", {
              rate: range(as.low.rate, as.high.rate, rate),
              measured: rate(measured),
            }),
      );
      setText(out.longer, longerSays());
      plot.root.hidden = Boolean(lane.doubt); /* a curve of times that do not count */
      plot.paint();
    }

    /* The question most often asked of this curve, answered. Empty where the times do not count. */
    function longerSays() {
      const p = plain(),
        points = lengths().map((gamma) => ({ gamma, ...speeds(model({ ...set, gamma }), p) })),
        found = p && !lane.doubt && M.longerDraft(points, shape.depth);
      if (!found) return "";
      const speed = (q) => range(q.low, q.high, times);
      return SpecViz.messages.say("whatif.longer." + found.kind, {
        best: count(found.best.gamma, "token"),
        speed: found.kind === "no" ? times(found.best.high) : speed(found.best),
        recorded: String(shape.depth),
        now: speed(found.recorded),
        last: String(found.last.gamma),
        end: speed(found.last),
      });
    }
    const speeds = (r, unit) => ({ low: r.low.rate / unit, high: r.high.rate / unit });
    const lengths = () => Array.from({ length: Number(out.gamma.input.max) }, (_, i) => i + 1);

    function limitations(r) {
      const greedy = !(lane.temperature > 0),
        copied = lane.rounds.some((x) => x.nodes.some((n) => n.src)),
        list = [];
      const known = r.places - r.unknown;
      const from =
        r.same < lane.rounds.length
          ? `The first ${count(r.same, "round")} would end where they ended. `
          : "Every round would end where it ended. ";
      if (greedy && shape.chain && !copied)
        list.push(
          SpecViz.messages.say("whatif.greedy.known") +
            `At ${known} of ${r.places} places the recording shows whether the guess was right.`,
        );
      else if (greedy)
        list.push(
          SpecViz.messages.say("whatif.greedy") +
            `${from}After that the ` +
            `${copied ? "copied draft" : "tree"} would have begun at other places and might hold other tokens: ` +
            "read the figures as an estimate.",
        );
      else list.push(SpecViz.messages.say("whatif.sampled") + from + SpecViz.messages.say("whatif.sampled.rest"));
      if (r.unknown)
        list.push(
          `At ${count(r.unknown, "place")} nobody asked the draft (a bonus token, or a round without a ` +
            "draft). The first figure takes them all as wrong, the second as " +
            `right${greedy && shape.chain && !copied ? "; the truth lies between" : ""}.`,
        );
      const rows = r.rows,
        where = curve.points.some((p) => Math.abs(p.rows - rows) < 0.01)
          ? "as measured in this trace"
          : rows > curve.to
            ? `longer than anything this trace measured (${curve.to} rows), so its price is drawn on in a straight line`
            : "between two counts that this trace measured";
      list.push(
        `Seconds are the recorded machine's: a pass of ${rows.toFixed(rows % 1 ? 1 : 0)} rows is ${where}. A ` +
          "smaller draft model would also be wrong more often; no recording can tell how much.",
      );
      return list;
    }

    function draw(width) {
      const xs = lengths(),
        most = xs.length,
        p = plain(),
        unit = p || 1;
      const runs = xs.map((gamma) => model({ ...set, gamma }));
      const low = runs.map((r, i) => [xs[i], r.low.rate / unit]),
        high = runs.map((r, i) => [xs[i], r.high.rate / unit]);
      const now = runs[set.gamma - 1],
        top = Math.max(...high.map((q) => q[1]), p ? 1.1 : 0) * 1.12;
      return P.plot.xy({
        width,
        height: 240,
        x: { min: 1, max: Math.max(2, most), name: "draft length, tokens", whole: true },
        y: { min: 0, max: top, show: p ? (v) => times(v).replace(/0\u00d7$/, "\u00d7") : undefined },
        rules: [...(p ? [{ y: 1, name: "plain decoding" }] : []), { x: shape.depth, name: "recorded" }],
        series: [
          { pts: high, name: "all right", cls: "dash" },
          { pts: low, name: "all wrong", cls: "" },
        ],
        marks: [
          {
            x: set.gamma,
            y: (now.low.rate + now.high.rate) / 2 / unit,
            name: p ? times((now.low.rate + now.high.rate) / 2 / unit) : rate((now.low.rate + now.high.rate) / 2),
          },
        ],
      });
    }

    return {
      root,
      update() {
        const l = env.lane();
        if (!l) {
          root.replaceChildren(env.empty("What if?", "Open or run a trace with a drafting method first."));
          lane = null;
          return;
        }
        if (l !== lane) {
          lane = l;
          build();
        }
      },
      destroy: () => plot?.stop(),
      state: () => ({ set, result: lane ? model(set) : null }),
    };
  }

  P.views = P.views || {};
  P.views.whatif = view;
})();
