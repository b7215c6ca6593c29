/* Lab, part of Another machine: a chip that accepts and rolls back without its host (HADES, 2412.19925). The server does the sums
   (specviz/lab/chip.py); this machine's measured passes stand beside the model, with the same acceptance. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el } = SpecViz.dom;
  const K = P.kit,
    M = P.maths;
  const WAIT = 120; /* ms after the last change */
  const LINES = [
    ["on_chip", "on chip", ""],
    ["host", "with host", "dash"],
  ];
  const half = (v) => Number((2 ** (v / 2)).toPrecision(2)); /* sliders of half powers of two */

  /* An answer of the server, whatever came: lists of finite numbers of one length. */
  function parse(got) {
    const lengths = Array.isArray(got && got.lengths) ? got.lengths.filter(K.finite).slice(0, 64) : [];
    const line = (x) =>
      Array.isArray(x) ? lengths.map((n, i) => [n, x[i]]).filter(([, y]) => K.finite(y) && y >= 0) : [];
    const design = (x) => ({
      speed: line(x && x.tokens_per_second),
      energy: line(x && x.joules_per_token).map(([n, y]) => [n, 1000 * y]),
    });
    const made = got && got.designs ? { host: design(got.designs.host), on_chip: design(got.designs.on_chip) } : null;
    if (!made || lengths.length < 2 || made.host.speed.length !== lengths.length) return null;
    const here = line(got.measured && got.measured.tokens_per_second);
    return { lengths, ...made, here, sram: K.finite(got.sram_bytes) ? got.sram_bytes : 0 };
  }

  function chip(env) {
    const set = { bandwidth: half(13), arithmetic: 1, dram_energy: 60, operation_energy: 1, sync: 50, acceptance: 0.7 };
    const tell = K.status(),
      figs = el("div", { "aria-live": "polite" }),
      note = el("div", { class: "pn-prose" }),
      press = K.button("Measure here", measure);
    let lane = null,
      got = null,
      curve = null,
      length = 4,
      relative = false,
      timer = 0,
      turn = 0;
    const from = () => SpecViz.save.own(SpecViz.messages.say("chip.about"));
    const speed = P.plot.frame("Tokens per second over the draft length", (w) => picture(w, "speed"), from),
      energy = P.plot.frame("Millijoules per token over the draft length", (w) => picture(w, "energy"), from);
    const slider = (label, key, min, max, read, unit, start) =>
      K.slider({
        label,
        min,
        max,
        value: start,
        show: (v) => read(v) + unit,
        on: (v) => {
          set[key] = read(v);
          ask();
        },
      });
    const accept = slider("Acceptance rate", "acceptance", 0, 99, (v) => v / 100, "", 70);
    const controls = [
      slider("Memory bandwidth", "bandwidth", 0, 24, half, " GB/s", 13),
      slider("Arithmetic", "arithmetic", -8, 20, half, " TFLOP/s", 0),
      slider("Energy per byte of DRAM", "dram_energy", 1, 40, (v) => v * 5, " pJ", 12),
      slider("Energy per operation", "operation_energy", -8, 8, half, " pJ", 0),
      slider("Host\u2019s part of a round", "sync", 0, 50, (v) => v * 10, " \u00b5s", 5),
      accept,
      K.slider({
        label: "Draft length",
        min: 0,
        max: 16,
        value: length,
        on: (v) => {
          length = v;
          paint();
        },
      }),
    ];

    function ask() {
      clearTimeout(timer);
      timer = setTimeout(send, WAIT);
    }
    async function send() {
      if (!lane) return;
      const mine = ++turn,
        million = (n, other) => (K.finite(n) && n > 0 ? n / 1e6 : other);
      const target = million(lane.targetSize, 135);
      const found = await K.request(
        env.ctx,
        "chip_model",
        {
          ...set,
          target_size: target,
          draft_size: million(lane.draftSize, target / 30),
          longest: 16,
          ...(curve ? { measured: curve } : {}),
        },
        { tell },
      );
      if (mine !== turn || !found) return;
      got = parse(found);
      paint();
    }
    /* Measured passes as the server takes them; only from one row on, since plain decoding is part of the picture. */
    const taken = (c, step) =>
      c && c.points.length > 1 && c.points[0].rows === 1
        ? {
            rows: c.points.map((p) => p.rows).slice(0, 64),
            seconds: c.points.map((p) => p.seconds).slice(0, 64),
            draft_seconds: K.finite(step) && step > 0 ? step : 0,
          }
        : null;
    async function measure() {
      const answer = await K.request(
        env.ctx,
        "cost_curve",
        { target: lane ? lane.targetName : "" },
        { press, tell, busy: "Measuring passes of 1 to 64 rows\u2026" },
      );
      const rows = Array.isArray(answer && answer.rows) ? answer.rows : [],
        points = rows.map((r, i) => ({ rows: r, seconds: answer.seconds && answer.seconds[i] }));
      const next = points.every((p) => Number.isInteger(p.rows) && K.finite(p.seconds))
        ? taken(M.curve(points), answer && answer.draft_seconds)
        : null;
      if (next) curve = next;
      send();
    }

    function picture(width, which) {
      if (!got) return el("p", { class: "pn-small" }, "No answer yet.");
      const own = which === "speed" && relative; /* each in multiples of its own plain decoding */
      const scaled = (pts) => (own && pts[0] && pts[0][1] > 0 ? pts.map(([n, y]) => [n, y / pts[0][1]]) : pts);
      const lines = LINES.map(([key, name, cls]) => ({ pts: scaled(got[key][which]), name, cls }));
      if (which === "speed" && got.here.length > 1)
        lines.push({ pts: scaled(got.here), name: "measured here", cls: "long" });
      const top = Math.max(...lines.flatMap((l) => l.pts.map((p) => p[1]))),
        mark = lines[0].pts[length];
      return P.plot.xy({
        width,
        height: 210,
        x: { min: 0, max: got.lengths[got.lengths.length - 1], name: "draft length (0: plain decoding)", whole: true },
        y: { min: 0, max: top * 1.15 || 1, show: own ? (v) => Number(v.toPrecision(3)) + "\u00d7" : undefined },
        series: lines,
        marks: mark ? [{ x: mark[0], y: mark[1], name: Number(mark[1].toPrecision(3)).toLocaleString("en") }] : [],
      });
    }
    function paint() {
      speed.paint();
      energy.paint();
      if (!got) return;
      const at = (key, which) => (got[key][which][length] || [0, 0])[1],
        plain = (which) => (got.host[which][0] || [0, 0])[1],
        digits = (x) => Number(x.toPrecision(3)).toLocaleString("en"),
        here = got.here.find((p) => p[0] === length);
      figs.replaceChildren(
        K.figures([
          {
            label: "Tokens per second",
            value: digits(at("on_chip", "speed")),
            note: `with host ${digits(at("host", "speed"))}, plain ${digits(plain("speed"))}`,
            strong: true,
          },
          {
            label: "Millijoules per token",
            value: digits(at("on_chip", "energy")),
            note: `with host ${digits(at("host", "energy"))}, plain ${digits(plain("energy"))}`,
          },
          {
            label: "This machine",
            value: here ? digits(here[1]) : "\u2013",
            note: here ? "tokens per second, measured passes" : "not measured yet",
          },
          { label: "On-chip memory", value: digits(got.sram / 1e6), unit: " MB", note: "the draft\u2019s weights" },
        ]),
      );
      note.replaceChildren(el("p", null, SpecViz.messages.say("chip.sums", { sync: set.sync + " \u00b5s" })));
    }
    const shown = K.choice(
      "Speed as",
      [
        ["rate", "Tokens per second"],
        ["relative", "Times plain"],
      ],
      "rate",
      (v) => {
        relative = v === "relative";
        speed.paint();
      },
    );
    const root = el(
      "section",
      { class: "pn-view pn-chip", "aria-label": "Acceptance on the chip" },
      el("h3", null, "Acceptance on the chip (HADES)"),
      el(
        "p",
        { class: "pn-flag" },
        el("b", null, SpecViz.messages.say("hardware.about")),
        " ",
        SpecViz.messages.say("chip.about"),
      ),
      K.twoColumns(
        [controls.map((c) => c.root), el("div", { class: "pn-row" }, press), tell.root],
        [figs, shown, speed.root, K.small("Millijoules per token"), energy.root],
      ),
      note,
    );
    return {
      root,
      update(l) {
        if (l === lane) return;
        lane = l;
        const level = P.traceLanes.levels(lane).alpha,
          peers = env.lanes().filter((x) => x.targetName === lane.targetName);
        if (K.finite(level)) {
          set.acceptance = Math.round(K.clamp(level, 0, 0.99) * 100) / 100;
          accept.set(Math.round(set.acceptance * 100));
        }
        curve = taken(M.curveOf(peers), P.traceLanes.costs(lane).step);
        send();
      },
      destroy() {
        clearTimeout(timer);
        turn++;
        speed.stop();
        energy.stop();
      },
    };
  }

  P.chip = chip;
})();
