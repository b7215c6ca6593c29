/* Lab: a method at several settings of one knob, each beside plain decoding. One request to the server. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times, rate, count } = SpecViz.dom;
  const K = P.kit;
  const { PROMPT, methodField } = P.ask;

  function sweep(env) {
    const cards = (env.ctx.catalogue || []).filter((c) => (c.knobs || []).some(numeric)),
      tell = K.status(),
      out = el("div");
    const method = methodField(env, cards, { on: () => knobs() });
    const knobPlace = el("div"),
      valuePlace = el("div"),
      prompt = K.field({ label: "Prompt", lines: 2, value: PROMPT, most: 2000 }),
      length = K.slider({ label: "Tokens", min: 32, max: 128, step: 16, value: 64, on() {} });
    const press = K.button("Sweep", run, "primary"),
      stop = K.button("Stop", () => control?.abort());
    stop.disabled = true;
    let control = null,
      knob = null,
      values = null,
      chart = null,
      shown = null;

    function knobs() {
      const card = cards.find((c) => c.key === method.value),
        list = card ? card.knobs.filter(numeric) : [];
      knob = K.select({ label: "Knob", options: list.map((k) => [k.name, k.name]), on: fresh });
      knobPlace.replaceChildren(knob.root);
      fresh();
    }
    function fresh() {
      const card = cards.find((c) => c.key === method.value),
        k = card && card.knobs.find((x) => x.name === knob.value);
      values = K.field({ label: "Values, at most eight", value: k ? spread(k).join(", ") : "", most: 200 });
      valuePlace.replaceChildren(values.root, k && k.help ? el("p", { class: "pn-help" }, K.say(k.help, 300)) : "");
    }
    async function run() {
      const list = K.numbers(values.value, 8);
      if (!list.length) {
        tell.set("Give at least one number.", "error");
        return;
      }
      control = new AbortController();
      stop.disabled = false;
      let last = null;
      const got = await K.request(
        env.ctx,
        "sweep",
        { method: method.value, knob: knob.value, values: list, prompt: prompt.value, max_new_tokens: length.value },
        {
          press,
          tell,
          signal: control.signal,
          busy: `Running ${count(list.length, "setting")}, in turns with plain decoding\u2026`,
          part: (p) => {
            if (!p || !p.rows) return;
            last = p;
            show(p);
          },
        },
      );
      stop.disabled = true;
      if (got) show(got);
      else if (last && control.signal.aborted) tell.set(SpecViz.messages.say("sweep.stopped"));
    }
    function show(got) {
      const rows = (Array.isArray(got.rows) ? got.rows : [])
        .slice(0, 32)
        .filter((r) => r && K.finite(r.tokens_per_second));
      if (!rows.length) return;
      const plain = K.median(rows.map((r) => r.plain_tokens_per_second).filter(K.finite)),
        believed = rows.filter((r) => !doubtful(r)),
        clear = SpecViz.timing.clearBest(
          believed.map((r) => ({ r, value: r.tokens_per_second, low: r.low ?? NaN, high: r.high ?? NaN })),
        ),
        most = rows.reduce((a, b) => (b.block_efficiency > a.block_efficiency ? b : a)),
        near = withinNoise(believed),
        /* where no time counts, the figures are of the setting with the longest accepted length */
        best = near[0] ?? most;
      shown = rows;
      chart?.stop();
      chart = P.plot.frame(
        `Tokens per second over ${K.say(got.knob, 40)}`,
        (w) => draw(w, K.say(got.knob, 40)),
        () =>
          SpecViz.save.own(
            `${method.value}, ${K.say(got.knob, 40)} ${shown.map((r) => K.say(r.value, 20)).join(", ")}; ` +
              `at most ${length.value} tokens, greedy. Prompt: \u201c${prompt.value.slice(0, 200)}\u201d.`,
          ),
      );
      out.replaceChildren(
        K.figures(
          [
            {
              label: (near.length ? "Fastest " : "Most tokens per pass: ") + K.say(got.knob, 40),
              value: K.say(best.value, 20),
              note: spanOf(near),
              strong: true,
            },
            {
              label: "Tokens per second",
              value: rate(best.tokens_per_second),
              note: plain && !doubtful(best) ? `plain: ${rate(plain)}` : "",
              timed: true,
            },
            {
              label: "Tokens per target pass",
              value: K.finite(best.block_efficiency) ? best.block_efficiency.toFixed(2) : "\u2013",
            },
          ],
          doubtful(best) ? "timing.wide" : "",
        ),
        chart.root,
        K.small(
          `${K.finite(got.turns) ? count(got.turns, "turn") : "One run"} a setting, in shuffled order with ` +
            "plain decoding. " +
            (clear ? "" : SpecViz.messages.say("timing.noise") + " ") +
            SpecViz.timing.remarks(rows, doubtful, got.replaced, got.passes) +
            (!clear
              ? ""
              : most.value === best.value
                ? "Here the fastest setting also keeps the most tokens per pass."
                : `Most tokens per pass: ${K.say(most.value, 20)}. It is not the fastest, because longer drafts cost more.`),
        ),
        K.table(
          [
            { name: K.say(got.knob, 40) },
            { name: "tokens/s", num: true },
            { name: "plain tokens/s", num: true },
            { name: "speed-up", num: true },
            { name: "tokens per pass", num: true },
          ],
          rows.map((r) => [
            K.say(r.value, 20),
            mark(r, rate(r.tokens_per_second) + turnsRange(r)),
            K.finite(r.plain_tokens_per_second) ? rate(r.plain_tokens_per_second) : "\u2013",
            K.finite(r.plain_tokens_per_second) ? mark(r, times(speedup(r))) : "\u2013",
            K.finite(r.block_efficiency) ? r.block_efficiency.toFixed(2) : "\u2013",
          ]),
          "The sweep in numbers",
        ),
      );
      chart.paint();
    }
    function draw(width, name) {
      const xs = shown.map((r) => (K.finite(Number(r.value)) ? Number(r.value) : String(r.value))),
        timed = (r, speed) => (doubtful(r) ? null : speed); /* speeds that do not count are not drawn */
      if (globalThis.Plotly) {
        const box = el("div", { class: "pn-live" });
        requestAnimationFrame(() => {
          if (box.isConnected)
            P.plot.plotly(
              box,
              [
                { name: "tokens per second", x: xs, y: shown.map((r) => timed(r, r.tokens_per_second)) },
                { name: "tokens per target pass", x: xs, y: shown.map((r) => r.block_efficiency), second: true },
                { name: "plain decoding", x: xs, y: shown.map((r) => timed(r, r.plain_tokens_per_second)) },
              ],
              { xname: name, yname: "tokens per second", y2name: "tokens per pass", width },
            );
        });
        return box;
      }
      const at = xs.map((x, i) => (typeof x === "number" ? x : i)),
        pts = (of) => shown.map((r, i) => [at[i], timed(r, of(r))]).filter(([, y]) => K.finite(y)),
        mine = pts((r) => r.tokens_per_second),
        plain = pts((r) => r.plain_tokens_per_second),
        top = Math.max(0, ...[...mine, ...plain].map(([, y]) => y));
      return P.plot.xy({
        width,
        height: 260,
        x: { min: Math.min(...at), max: Math.max(...at, Math.min(...at) + 1), name },
        y: { min: 0, max: (top || 1) * 1.12 },
        series: [
          { pts: mine, name: "tokens per second", dots: 3.5 },
          { pts: plain, name: "plain decoding", cls: "dot" },
        ],
      });
    }
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Turn one knob",
        K.lead(
          "Run a method at several settings of one knob, each beside plain decoding, and see where it is fastest here.",
        ),
      ),
      K.twoColumns(
        [
          method.root,
          knobPlace,
          valuePlace,
          prompt.root,
          length.root,
          el("div", { class: "pn-row" }, press, stop),
          tell.root,
        ],
        [out],
      ),
    );
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        el("b", null, "Nothing swept yet"),
        "Choose a method and one of its knobs, then press \u201cSweep\u201d.",
      ),
    );
    if (cards.length) knobs();
    return { root, update: method.update, destroy: () => (chart?.stop(), control?.abort()) };
  }

  /* A speed that is not named (speed.js), or one that its accepted length cannot carry; the spread of the turns. */
  const speedup = (r) => r.tokens_per_second / r.plain_tokens_per_second;
  const doubtful = (r) => r.named === false || !SpecViz.timing.plausible(speedup(r), r.block_efficiency);
  /* The fastest of these settings first, then those whose spread reaches into its own. */
  function withinNoise(rows) {
    const close = SpecViz.speed.CLOSE,
      low = (r) => r.low ?? r.tokens_per_second / close,
      high = (r) => r.high ?? r.tokens_per_second * close,
      byRate = [...rows].sort((a, b) => b.tokens_per_second - a.tokens_per_second);
    return byRate.filter((r) => high(r) >= low(byRate[0]));
  }
  /* "within noise 3 to 5", or "" of one setting. */
  function spanOf(rows) {
    const values = rows.map((r) => Number(r.value)).sort((a, b) => a - b);
    if (values.length < 2 || !values.every(K.finite)) return "";
    return SpecViz.messages.say("sweep.noise", { low: String(values[0]), high: String(values[values.length - 1]) });
  }
  const mark = (r, text) => (doubtful(r) ? K.unnamed() : text);
  const turnsRange = (r) => (K.finite(r.low) && K.finite(r.high) ? ` (${rate(r.low)} to ${rate(r.high)})` : "");

  const numeric = (k) =>
    typeof k.default === "number" && !(k.choices && k.choices.length) && K.finite(k.low) && K.finite(k.high);
  /* Six values over a knob's range, its default among them. */
  function spread(k) {
    const whole = Number.isInteger(k.default) && Number.isInteger(k.low),
      lo = Math.max(k.low, 0),
      hi = Math.min(k.high, Math.max(k.default * 3, lo + 1)),
      out = new Set([k.default]);
    for (let i = 0; i < 6; i++) {
      const x = lo + ((hi - lo) * i) / 5;
      out.add(whole ? Math.round(x) : Number(x.toPrecision(2)));
    }
    return [...out]
      .filter((x) => x >= k.low && x <= k.high)
      .sort((a, b) => a - b)
      .slice(0, 7);
  }

  P.sweep = { withinNoise, spanOf };
  (P.views = P.views || {}).sweep = sweep;
})();
