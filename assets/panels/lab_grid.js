/* Lab: a method's speed over draft length and temperature, measured beside predicted, cell by cell. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, svg, times } = SpecViz.dom;
  const K = P.kit;
  const { PROMPT, methodField } = P.ask;
  const LENGTHS = ["gamma", "depth", "block", "window", "length", "most"]; /* as heat_map.py knows them */
  const CELL = { tall: 58, left: 104, top: 30 };
  const sized = (k) => LENGTHS.includes(k.name) && Number.isInteger(k.default) && typeof k.default === "number";

  function grid(env) {
    const cards = (env.ctx.catalogue || []).filter((c) => (c.knobs || []).some(sized)),
      method = methodField(env, cards),
      prompt = K.field({ label: "Prompt", lines: 2, value: PROMPT, most: 2000 }),
      lengths = K.field({ label: "Draft lengths, at most eight", value: "1, 2, 4, 8", most: 60 }),
      temperatures = K.field({ label: "Temperatures, at most six", value: "0, 0.5, 1", most: 60 }),
      length = K.slider({ label: "Tokens", min: 16, max: 128, step: 16, value: 48, on() {} }),
      tell = K.status(),
      out = el("div"),
      press = K.button("Measure", run, "primary"),
      stop = K.button("Stop", () => control?.abort());
    const said = K.small();
    let control = null,
      chart = null,
      got = null;
    stop.disabled = true;

    async function run() {
      control = new AbortController();
      stop.disabled = false;
      const asked = {
        method: method.value,
        prompt: prompt.value,
        lengths: K.numbers(lengths.value, 8),
        temperatures: K.numbers(temperatures.value, 6),
        max_new_tokens: length.value,
      };
      const part = (p) => {
        if (!p || !Array.isArray(p.cells)) return;
        tell.set(`${K.say(p.done, 6)} of ${K.say(p.of, 6)} runs`, "busy");
        show(p);
      };
      const whole = await K.request(env.ctx, "heat_map", asked, {
        press,
        tell,
        part,
        signal: control.signal,
        busy: "Warming up\u2026",
      });
      stop.disabled = true;
      if (whole) show(whole);
    }
    function show(found) {
      got = found;
      if (!chart) {
        chart = P.plot.frame(
          "Speed-up over draft length and temperature",
          draw,
          () =>
            SpecViz.save.own(
              `${K.say(got.method, 40)}, ${K.say(got.done, 6)} of ${K.say(got.of, 6)} runs of at most ${length.value} tokens. ` +
                `Prompt: \u201c${prompt.value.slice(0, 200)}\u201d.`,
            ),
          "Large: measured, times plain decoding at this temperature. Small: predicted from the acceptance rate.",
        );
        out.replaceChildren(
          chart.root,
          K.small(
            "Large: measured, in times plain decoding\u2019s speed at the same temperature. Small: " +
              "predicted from the acceptance " +
              "rate (1 + a + a\u00b2 + \u2026 tokens a round) and the measured cost of a round.",
          ),
          said,
          el(
            "div",
            { class: "pn-row" },
            K.button("Save as CSV", () => P.io.save("length-temperature.csv", [String(got.csv || "")], "text/csv")),
          ),
        );
      }
      said.textContent = SpecViz.timing.remarks(got.cells, doubtful, got.replaced, got.passes);
      chart.paint();
    }
    /* A row a temperature, a column a draft length: the darker, the faster; a dashed cell is slower than plain decoding. */
    function draw(width) {
      const xs = got.lengths.slice(0, 8),
        ys = got.temperatures.slice(0, 6),
        w = Math.min(150, (width - CELL.left) / xs.length),
        H = CELL.top + ys.length * CELL.tall + 8,
        top = Math.max(1.01, ...got.cells.map((c) => c.walltime_speedup || 0)),
        S = svg("svg", { width, height: H, viewBox: `0 0 ${width} ${H}`, role: "img", "aria-label": spoken() }),
        text = (x, y, s, cls, anchor = "middle") => svg("text", { x, y, class: cls, "text-anchor": anchor }, s);
      xs.forEach((x, i) => S.append(text(CELL.left + (i + 0.5) * w, 18, `${K.say(x, 8)} tokens`, "ax")));
      ys.forEach((t, k) => {
        S.append(text(CELL.left - 12, CELL.top + (k + 0.58) * CELL.tall, `temperature ${K.say(t, 6)}`, "ax", "end"));
        xs.forEach((x, i) => S.append(cell(x, t, CELL.left + i * w, CELL.top + k * CELL.tall, w, top, text)));
      });
      return S;
    }
    function cell(x, t, left, y, w, top, text) {
      const c = got.cells.find((one) => one.draft_length === x && one.temperature === t) || {},
        k = c.walltime_speedup,
        known = K.finite(k),
        doubt = known && doubtful(c),
        shade = known ? K.clamp((k - 1) / (top - 1), 0, 1) * 0.3 : 0;
      return svg(
        "g",
        null,
        svg("rect", {
          class: "pn-cell" + (known && k < 1 ? " slow" : ""),
          x: left + 2,
          y: y + 2,
          width: w - 4,
          height: CELL.tall - 4,
          rx: 4,
          "fill-opacity": shade.toFixed(3),
        }),
        text(left + w / 2, y + 29, known && !doubt ? times(k) : "\u2013", "pn-celltext"),
        text(left + w / 2, y + 46, K.finite(c.predicted_speedup) ? times(c.predicted_speedup) : "", "ax"),
      );
    }
    const doubtful = (c) => c.named === false || !SpecViz.timing.plausible(c.walltime_speedup, c.block_efficiency);
    const spoken = () =>
      got.cells
        .map(
          (c) =>
            `${c.draft_length} tokens, temperature ${c.temperature}: ` +
            `${K.finite(c.walltime_speedup) ? times(c.walltime_speedup) : "not measured"}`,
        )
        .join("; ");
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        el("b", null, SpecViz.messages.say("panel.empty")),
        "Every cell runs twice, in shuffled order. Press \u201cMeasure\u201d.",
      ),
    );
    return {
      root: el(
        "div",
        { class: "pn-view" },
        K.head(
          "Length and temperature",
          K.lead("How fast is a method over draft length and temperature, and does the formula know it?"),
        ),
        K.twoColumns(
          [
            [method, lengths, temperatures, prompt, length].map((c) => c.root),
            el("div", { class: "pn-row" }, press, stop),
            tell.root,
          ],
          [out],
        ),
      ),
      update: method.update,
      destroy() {
        control?.abort();
        chart?.stop();
      },
    };
  }

  (P.views = P.views || {}).grid = grid;
})();
