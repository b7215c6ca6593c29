/* Lab: another machine. A roofline: a pass either waits for its weights or for its arithmetic, whichever takes longer.
   The acceptance is this trace's; all else is arithmetic. A model, not a measurement, and it says so. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times, span } = SpecViz.dom;
  const K = P.kit,
    M = P.maths;

  /* Makers' data sheets: memory bandwidth in GB/s, dense 16-bit matrix throughput in TFLOP/s. */
  const MACHINES = [
    ["laptop", "Laptop, two channels of DDR5", 90, 1],
    ["server", "Server processor, eight channels of DDR5", 300, 8],
    ["phone", "Phone, LPDDR5X", 75, 2],
    ["4090", "RTX 4090", 1008, 165],
    ["l4", "L4", 300, 121],
    ["a100", "A100 80 GB SXM", 2039, 312],
    ["h100", "H100 SXM", 3350, 989],
    ["h200", "H200", 4800, 989],
    ["b200", "B200", 8000, 2250],
    ["m4", "Apple M4", 120, 3.76],
    ["own", "Your own numbers", 500, 50],
  ];
  const TARGETS = [
    ["trace", "The trace's own target"],
    ["1", "1 B parameters"],
    ["8", "8 B parameters"],
    ["14", "14 B parameters"],
    ["32", "32 B parameters"],
    ["70", "70 B parameters"],
  ];
  const BYTES = [
    ["4", "4 bytes (float32)"],
    ["2", "2 bytes (bfloat16)"],
    ["1", "1 byte (8 bits)"],
    ["0.5", "half a byte (4 bits)"],
  ];

  function view(env) {
    const set = { machine: "a100", target: "8", bytes: "2", bandwidth: 2039, flops: 312, batch: 1 };
    const root = el("div", { class: "pn-view" }),
      figs = el("div", { "aria-live": "polite" }),
      prose = el("div", { class: "pn-prose" });
    const plot = P.plot.frame("Speed-up over the batch size", draw, () => {
      const { target, bytes, bandwidth, flops } = set;
      return SpecViz.save.own(
        `Computed, not measured: ${target} billion parameters of ${bytes} bytes, ${bandwidth} GB/s, ${flops} TFLOP/s.`,
      );
    });
    const machine = K.select({
      label: "Machine",
      options: MACHINES.map((m) => [m[0], m[1]]),
      value: set.machine,
      on: (v) => {
        const m = MACHINES.find((x) => x[0] === v);
        Object.assign(set, { machine: v, bandwidth: m[2], flops: m[3] });
        bw.input.value = m[2];
        fl.input.value = m[3];
        paint();
      },
    });
    const number = (label, key, max) =>
      K.field({
        label,
        type: "number",
        value: set[key],
        min: 1,
        max,
        step: "any",
        inputmode: "decimal",
        on: (v) => {
          set[key] = K.clamp(Number(v) || 1, 0.01, max);
          set.machine = machine.input.value = "own";
          paint();
        },
      });
    const bw = number("Memory bandwidth, GB/s", "bandwidth", 1e6),
      fl = number("Arithmetic, TFLOP/s", "flops", 1e6);
    const target = K.select({
      label: "Target",
      options: TARGETS,
      value: set.target,
      on: (v) => {
        set.target = v;
        paint();
      },
    });
    const bytes = K.select({
      label: "Weights",
      options: BYTES,
      value: set.bytes,
      on: (v) => {
        set.bytes = v;
        paint();
      },
    });
    const batch = K.slider({
      label: "Answers at a time (batch)",
      min: 0,
      max: 10,
      value: 0,
      show: (v) => String(2 ** v),
      on: (v) => {
        set.batch = 2 ** v;
        paint();
      },
    });
    const roof = P.roofline(env),
      chip = P.chip(env);
    let lane = null;

    /* What a draft step is to the target, kept when the target grows: the ratio of sizes where the method drafts with the
       draft model, else the measured ratio of times; a lookup's is as good as nothing.
       [ratio, whether it is one of this trace's times] */
    /** @param {number} own @returns {[number, boolean]} */
    function ratioOf(own) {
      const card = (env.ctx.catalogue || []).find((c) => c.key === lane.key),
        sized = lane.draftSize && card && [...(card.needs || [])].includes("draft");
      const pass = lane.base ? P.traceLanes.costs(lane.base).verify : 0,
        c = pass > 0 ? P.traceLanes.costs(lane).step / pass : 0;
      return c < 0.02 ? [0, false] : sized ? [lane.draftSize / own, false] : [c, true];
    }
    function ask(over = {}) {
      const own = lane.targetSize || 1e9,
        size = set.target === "trace" ? own : Number(set.target) * 1e9,
        [ratio, timed] = ratioOf(own);
      const rows = 1 + K.mean(lane.rounds.map((r) => r.nodes.length)),
        gamma = K.mean(lane.rounds.map((r) => r.depth)),
        tau = lane.tokens / lane.rounds.length;
      return {
        size,
        ratio,
        timed,
        rows,
        gamma,
        tau,
        ...M.roofline({
          target: size,
          draft: size * ratio,
          bytes: Number(set.bytes),
          bandwidth: set.bandwidth * 1e9,
          flops: set.flops * 1e12,
          tau,
          gamma,
          rows,
          batch: set.batch,
          ...over,
        }),
      };
    }
    function breakEven() {
      for (let b = 1; b <= 4096; b *= 2) if (ask({ batch: b }).speedup < 1) return b;
      return null;
    }

    function paint() {
      const r = ask(),
        dead = breakEven(),
        counts = !(r.timed && lane.doubt),
        big = (x) => (x >= 1e9 ? (x / 1e9).toPrecision(3) + " B" : (x / 1e6).toPrecision(3) + " M");
      figs.replaceChildren(
        K.figures(
          [
            {
              label: "Speed-up there",
              value: times(r.speedup),
              note:
                `batch ${set.batch}` + (lane.doubt ? "" : `; measured here: ${times(lane.metrics.walltime_speedup)}`),
              strong: true,
              timed: r.timed,
            },
            { label: "A plain pass", value: span(r.plain.seconds), note: `waits for ${r.plain.bound}` },
            {
              label: "A pass with the draft",
              value: span(r.verify.seconds),
              note: `${r.rows.toFixed(1)} rows, waits for ${r.verify.bound}`,
            },
            {
              label: "Tokens per second",
              value: (r.rate * set.batch).toFixed(0),
              note: `plain: ${(r.plainRate * set.batch).toFixed(0)}`,
              timed: r.timed,
            },
          ],
          lane.doubt,
        ),
      );
      plot.root.hidden = !counts;
      prose.replaceChildren(
        ...[
          el(
            "p",
            null,
            `Target of ${big(r.size)} parameters, ` +
              (r.ratio
                ? `a draft that reads ${big(r.size * r.ratio)} a step (the trace's own ratio)`
                : "a draft that reads no model") +
              ". " +
              `Rows stop being free where ${Math.max(1, Math.round(r.ridge))} of them share one reading of the ` +
              "weights: there arithmetic takes over.",
          ),
          counts &&
            el(
              "p",
              null,
              dead === null
                ? "It pays at every batch up to 4,096."
                : dead === 1
                  ? "It does not pay there at all: the draft costs more than it saves."
                  : `It stops paying between ${dead / 2} and ${dead} answers at a time: then plain decoding ` +
                    "already keeps the arithmetic busy.",
            ),
          el(
            "p",
            null,
            "Left out: reading the keys and values of long contexts, communication between devices, the cost " +
              "of starting each kernel. Acceptance and tokens per pass are this trace's; another pair of models " +
              "has its own.",
          ),
        ].filter(Boolean),
      );
      plot.paint();
    }
    function draw(width) {
      if (!lane) return [];
      const xs = Array.from({ length: 21 }, (_, i) => 2 ** (i / 2)),
        pts = xs.map((b) => [b, ask({ batch: b }).speedup]);
      return P.plot.xy({
        width,
        height: 230,
        x: { min: 1, max: 1024, log: true, name: "answers at a time (batch)" },
        y: { min: 0, max: Math.max(1.5, ...pts.map((p) => p[1])) * 1.15, show: (v) => v + "\u00d7" },
        rules: [{ y: 1, name: "plain decoding" }],
        series: [{ pts }],
        marks: [{ x: set.batch, y: ask().speedup, name: times(ask().speedup) }],
      });
    }
    function build() {
      root.replaceChildren(
        K.head(
          "Another machine",
          K.lead(
            "What this trace's acceptance would mean on other hardware, worked out from two numbers of a data sheet.",
          ),
        ),
        el(
          "p",
          { class: "pn-flag" },
          el("b", null, SpecViz.messages.say("hardware.about")),
          " A roofline: each pass takes as long as reading its weights or doing its sums, whichever is longer.",
        ),
        env.laneLine(lane),
        K.twoColumns([machine.root, bw.root, fl.root, target.root, bytes.root, batch.root], [figs, plot.root]),
        K.box("", prose),
        roof.root,
        chip.root,
      );
      paint();
      roof.update(lane);
      chip.update(lane);
    }
    return {
      root,
      update() {
        const l = env.lane();
        if (!l) {
          root.replaceChildren(env.empty("Another machine", "Open or run a trace with a drafting method first."));
          lane = null;
          return;
        }
        if (l !== lane) {
          lane = l;
          build();
        }
      },
      destroy() {
        plot.stop();
        roof.destroy();
        chip.destroy();
      },
    };
  }

  (P.views = P.views || {}).hardware = view;
})();
