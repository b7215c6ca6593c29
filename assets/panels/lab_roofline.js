/* Lab, part of Another machine: what a pass with more rows costs, on named cards with named models, and this machine's measured
   passes on top. Arithmetic on data sheets and model configurations; only the passes here are measured. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, span } = SpecViz.dom;
  const K = P.kit,
    M = P.maths;
  const MOST = 512 /* rows */,
    TALL = 12; /* times a pass with one row, at most drawn */

  /* Memory bandwidth in GB/s, dense 16-bit throughput in TFLOP/s. NVIDIA's data sheets of H100 SXM and HGX B200 (without
     sparsity); Apple gives the M4's bandwidth, and its arithmetic is 1,280 lanes x 2 x 1.47 GHz. */
  const CARDS = [
    ["H100 SXM", 3350, 989],
    ["B200", 8000, 2250],
    ["M4", 120, 3.76],
  ];
  /* Parameters that every pass reads (without the table of input embeddings), those of routed experts, and how many of them a
     token is sent to; bytes of keys and values of a token in 16 bits. From each model's configuration. */
  /** @type {[string, string, {dense: number, kv: number, routed?: number, of?: number, top?: number}][]} */
  const MODELS = [
    ["qwen3", "Qwen3-8B", { dense: 7.57e9, kv: 2 * 2 * 36 * 8 * 128 }],
    ["llama31", "Llama-3.1-8B", { dense: 7.5e9, kv: 2 * 2 * 32 * 8 * 128 }],
    [
      "deepseek",
      "DeepSeek-V3: 256 experts, 8 a token",
      { dense: 16.2e9, routed: 653.9e9, of: 256, top: 8, kv: 2 * 61 * 576 },
    ],
  ];
  const BYTES = 2;

  /* Seconds of a pass: reading weights or arithmetic, whichever takes longer. Experts are read if one row needs them; rows are
     sent to experts independently of each other. */
  function pass(model, bandwidth, flops, rows) {
    const routed = model.routed || 0,
      touched = routed ? 1 - (1 - model.top / model.of) ** rows : 0,
      active = model.dense + (routed ? (routed * model.top) / model.of : 0);
    const read = ((model.dense + routed * touched) * BYTES) / (bandwidth * 1e9),
      sums = (2 * active * rows) / (flops * 1e12);
    return Math.max(read, sums);
  }

  function roofline(env) {
    let model = MODELS[0],
      lane = null,
      curve = null;
    const tell = K.status(),
      press = K.button("Measure here", measure),
      table = el("div"),
      note = el("div", { class: "pn-prose" });
    const choice = K.select({
      label: "Model",
      options: MODELS.map(([key, name]) => [key, name]),
      value: model[0],
      on: (v) => {
        model = MODELS.find((one) => one[0] === v) || model;
        paint();
      },
    });
    const plot = P.plot.frame("A pass over its rows", draw, () =>
      SpecViz.save.own(`Computed from data sheets for ${model[1]} in 16 bits, and passes measured here.`),
    );
    async function measure() {
      const got = await K.request(
        env.ctx,
        "cost_curve",
        { target: lane ? lane.targetName : "" },
        { press, tell, busy: "Measuring passes of 1 to 64 rows\u2026" },
      );
      const rows = Array.isArray(got && got.rows) ? got.rows : [],
        points = rows.map((r, i) => ({ rows: r, seconds: got.seconds && got.seconds[i] }));
      if (points.length > 1 && points[0].rows === 1 && points.every((p) => Number.isInteger(p.rows) && p.seconds > 0))
        curve = { points, machine: K.say(got.machine || "", 200) };
      paint();
    }
    function draw(width) {
      const xs = Array.from({ length: 37 }, (_, i) => 2 ** (i / 4));
      const series = CARDS.map(([name, bandwidth, flops], i) => {
        const one = pass(model[2], bandwidth, flops, 1);
        const pts = xs.map((rows) => [rows, pass(model[2], bandwidth, flops, rows) / one]).filter((p) => p[1] <= TALL);
        return { pts, name, cls: ["", "dash", "dot"][i] };
      });
      if (curve)
        series.push({
          pts: curve.points.map((p) => [p.rows, p.seconds / curve.points[0].seconds]).filter((p) => p[1] <= TALL),
          name: "measured here",
          cls: "long",
        });
      return P.plot.xy({
        width,
        height: 240,
        x: { min: 1, max: MOST, log: true, name: "rows of a pass (batch times tokens verified)" },
        y: { min: 0, max: TALL, show: (v) => v + "\u00d7" },
        rules: [{ y: 1, name: "a pass with one row" }],
        series,
      });
    }
    function paint() {
      const [, name, m] = model,
        cells = CARDS.map(([card, bandwidth, flops]) => {
          const at = (rows) => pass(m, bandwidth, flops, rows);
          const ratio = (rows) => (at(rows) / at(1)).toFixed(2) + "\u00d7";
          return [`${card} (${bandwidth} GB/s, ${flops} TFLOP/s)`, span(at(1)), ratio(5), ratio(16), ratio(64)];
        });
      if (curve) {
        const first = curve.points[0].seconds,
          ratio = (rows) => {
            const known = M.curve(curve.points);
            const y = rows <= known.to ? known.at(rows) : NaN; /* nothing beyond what was measured */
            return K.finite(y) ? (y / first).toFixed(2) + "\u00d7" : "\u2013";
          };
        cells.push([`measured here (${curve.machine})`, span(first), ratio(5), ratio(16), ratio(64)]);
      }
      table.replaceChildren(
        K.table(
          [
            "Card",
            { name: "One row", num: true },
            { name: "5 rows", num: true },
            { name: "16", num: true },
            { name: "64", num: true },
          ],
          cells,
          `A pass of ${name} in 16 bits, by rows`,
        ),
      );
      const kv = (m.kv * 32768) / 1e9;
      note.replaceChildren(
        el(
          "p",
          null,
          m.routed
            ? "Each row may need other experts, so that a pass with a draft reads more weights " +
                "than one with a single row. Routing is " +
                "taken as even and independent; neighbouring tokens share experts in fact. "
            : "",
          `Left out: keys and values (${(m.kv / 1024).toFixed(0)} KiB a token, ` +
            `so ${kv.toFixed(1)} GB read in every pass after 32,768 tokens), ` +
            "the start of kernels, communication between cards, attention\u2019s own arithmetic, " +
            "and that no card reaches its published figures.",
        ),
        el(
          "p",
          { class: "pn-small" },
          "Published figures of H100 SXM and HGX B200, dense, and of the M4\u2019s bandwidth; " +
            "its arithmetic is 1,280 lanes \u00d7 2 \u00d7 1.47 GHz. " +
            "Sizes of the models as published.",
        ),
      );
      plot.paint();
    }
    const root = el(
      "section",
      { class: "pn-view", "aria-label": "What more rows cost" },
      el("h3", null, "What more rows cost"),
      el(
        "p",
        { class: "pn-flag" },
        el("b", null, SpecViz.messages.say("hardware.about")),
        " Named cards and models; your machine\u2019s measured passes on top.",
      ),
      el("div", { class: "pn-row" }, choice.root, press),
      tell.root,
      plot.root,
      table,
      note,
    );
    return {
      root,
      update(l) {
        if (l === lane) return;
        lane = l;
        const held = M.curveOf(env.lanes().filter((x) => x.targetName === lane.targetName));
        curve =
          held && held.points.length > 1 && held.points[0].rows === 1
            ? { points: held.points, machine: "this trace" }
            : null;
        paint();
      },
      destroy: () => plot.stop(),
    };
  }

  P.roofline = roofline;
  P.roofline.pass = pass;
  P.roofline.MODELS = MODELS;
})();
