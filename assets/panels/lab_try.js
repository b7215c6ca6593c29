/* Lab: questions to the engine. The distribution test (do sampled tokens follow the target's law?), the break-it lab (classic
   mistakes, and what catches them), and a sweep of one knob. Each is one request to the server, one at a time. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText, times, rate, pct, f3, count } = SpecViz.dom;
  const K = P.kit,
    M = P.maths;
  const PROMPT = "Tell a story about a small dragon.";

  /* Which method to ask about, by family. One that cannot be asked is grey, and below it stands why: what the server says of
     the models that are there, or what this view itself knows (`why`). */
  function methodField(env, cards, { why = () => "", on = () => {} } = {}) {
    const field = K.select({ label: "Method", options: [], on }),
      list = el("dl", { class: "pn-why" }),
      said = el("summary");
    const more = el("details", { class: "pn-more" }, said, list),
      root = el("div", null, field.root, more);
    let off = {},
      told = false;
    const reason = (c) => (typeof off[c.key] === "string" && off[c.key]) || why(c);
    function fill() {
      const held = field.value || "speculative",
        grey = cards.filter(reason),
        open = cards.filter((c) => !reason(c));
      const option = (c) =>
        el(
          "option",
          { value: c.key, disabled: Boolean(reason(c)), title: reason(c) ? K.say(reason(c), 300) : null },
          K.say(c.title, 90) + (reason(c) ? " \u2013 not here" : ""),
        );
      const families = [...new Set(cards.map((c) => c.family))];
      field.input.replaceChildren(
        ...families.map((f) =>
          el("optgroup", { label: K.say(f, 60) }, cards.filter((c) => c.family === f).map(option)),
        ),
      );
      const kept = open.find((c) => c.key === held) || open[0];
      if (kept) field.input.value = kept.key;
      setText(said, `${count(grey.length, "method")} cannot be asked here, and why`);
      list.replaceChildren(
        ...grey.flatMap((c) => [el("dt", null, K.say(c.title, 90)), el("dd", null, K.say(reason(c), 300))]),
      );
      more.hidden = !grey.length;
      if (told && kept && kept.key !== held) on(kept.key);
    }
    fill();
    return {
      root,
      get value() {
        return field.value;
      },
      update: () =>
        env.off().then((got) => {
          if (got !== off) {
            off = got;
            told = true;
            fill();
          }
        }),
    };
  }
  const dash = (x) => (x === null || x === undefined ? "\u2013" : x);

  /* Verdict as a person reads it: a sentence in a frame whose colour and whose form say the same. */
  const verdict = (good, title, text) =>
    el(
      "div",
      { class: "pn-verdict", "data-good": good === null ? "none" : String(Boolean(good)) },
      el(
        "b",
        null,
        el("span", { class: "sign", "aria-hidden": "true" }, good === null ? "\u25cb" : good ? "\u2713" : "\u2715"),
        title,
      ),
      text ? el("span", null, text) : null,
    );

  /* Counts and law side by side, as lists, whatever form the server chose (lists, or objects by token). */
  function pairs(got) {
    const law = got && got.plain_law,
      cnt = got && got.method_counts;
    if (!law || !cnt || typeof law !== "object" || typeof cnt !== "object") return null;
    const names = Array.isArray(got.tokens) ? got.tokens : [],
      keys = Array.isArray(law) ? law.map((_, i) => i) : [...new Set([...Object.keys(law), ...Object.keys(cnt)])];
    const list = keys
      .slice(0, 4096)
      .map((k, i) => ({
        name: K.say(Array.isArray(law) ? (names[i] ?? "#" + i) : k, 40),
        count: Number(cnt[k]) || 0,
        law: Number(law[k]) || 0,
      }));
    return list.length ? list : null;
  }

  function distribution(env) {
    const tell = K.status(),
      out = el("div"),
      why = (c) =>
        c.exactness === "greedy only" ? `${c.title} works at temperature 0 only, where nothing is drawn.` : "";
    const method = methodField(
      env,
      (env.ctx.catalogue || []).filter((c) => c.key !== SpecViz.metrics.BASELINE),
      { why },
    );
    const prompt = K.field({ label: "Prompt", lines: 2, value: PROMPT, most: 2000 });
    const heat = K.slider({
      label: "Temperature",
      min: 0.2,
      max: 2,
      step: 0.1,
      value: 1,
      show: (v) => v.toFixed(1),
      on() {},
    });
    const many = K.slider({ label: "Samples", min: 50, max: 400, step: 50, value: 200, on() {} });
    const press = K.button("Draw samples", run, "primary");
    async function run() {
      const got = await K.request(
        env.ctx,
        "distribution",
        { method: method.value, knobs: {}, prompt: prompt.value, samples: many.value, temperature: heat.value },
        {
          press,
          tell,
          busy: `Drawing ${many.value} continuations, each from a fresh seed\u2026`,
          part: (p) => out.replaceChildren(show(p)),
        },
      );
      if (got) out.replaceChildren(show(got));
    }
    function show(got) {
      const list = pairs(got);
      if (!list) return K.small("The server's answer held no counts.");
      const counts = list.map((x) => x.count),
        n = K.sum(counts),
        cells = M.cells(
          counts,
          list.map((x) => x.law),
        ),
        p = K.finite(got.p_value) ? got.p_value : null;
      const impossible = list.some((x) => x.count > 0 && !(x.law > 0)),
        good =
          got.verdict === "open" || p === null
            ? null
            : got.verdict
              ? got.verdict === "pass"
              : p >= 0.001 && !impossible,
        top = Math.max(1, ...cells.map((c) => Math.max(c.count, c.expect)));
      const name = (c) =>
        c.i < 0
          ? el("em", null, "all rarer")
          : list[c.i].name === "\u2026"
            ? el("em", null, "any other start")
            : el("bdi", null, list[c.i].name);
      const rows = cells.slice(0, 16);
      return el(
        "div",
        null,
        verdict(
          good,
          good === null
            ? "Still drawing"
            : good
              ? "The samples follow the target's law"
              : "The samples do not follow the target's law",
          `${count(n, "sample")}, \u03c7\u00b2 = ${K.finite(got.chi_square) ? got.chi_square.toFixed(1) : dash(null)}, p = ${p === null ? "\u2013" : p < 1e-4 ? p.toExponential(0) : p.toFixed(3)}. ${good ? "A difference this large or larger comes by chance about " + (p > 0.99 ? "always" : "once in " + (1 / p < 10 ? (1 / p).toFixed(1) : Math.round(1 / p)) + " tries") + "." : impossible ? "A token came that the target never says." : good === false ? "Chance alone would hardly do this." : ""}`,
        ),
        el(
          "div",
          { class: "pn-keys" },
          el("span", null, el("i", { class: "pn-sw full" }), "drawn"),
          el("span", null, el("i", { class: "pn-sw tick" }), "expected from the target's law"),
        ),
        P.plot.bars(
          rows.map((c) => ({
            name: name(c),
            value: c.count,
            mark: c.expect,
            show: `${c.count} of ${c.expect.toFixed(1)}`,
          })),
          { max: top * 1.05, label: "Counts against the law" },
        ),
        cells.length > rows.length ? K.small(`${cells.length - rows.length} more cells are in the test.`) : null,
        el(
          "details",
          { class: "pn-more" },
          el("summary", null, "How the sum is made"),
          el(
            "p",
            { class: "pn-small" },
            "\u03c7\u00b2 adds (drawn \u2212 expected)\u00b2 / expected over the cells. A cell is a beginning of the continuation (with \u2026, all that goes on otherwise); beginnings too rare to count share one.",
          ),
          K.table(
            [
              { name: "token" },
              { name: "drawn", num: true },
              { name: "expected", num: true },
              { name: "adds to \u03c7\u00b2", num: true },
            ],
            rows.map((c) => [
              name(c),
              String(c.count),
              c.expect.toFixed(1),
              c.add === null ? "\u221e" : c.add.toFixed(2),
            ]),
            "Cells of the test",
          ),
        ),
      );
    }
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Does sampling stay the same?",
        K.lead(
          "Draw the same continuation many times with a method and count what came. If the method is exact, the counts follow the law of plain decoding.",
        ),
      ),
      el(
        "div",
        { class: "pn-two" },
        el(
          "div",
          { class: "pn-box pn-controls" },
          method.root,
          prompt.root,
          heat.root,
          many.root,
          el("div", { class: "pn-row" }, press),
          tell.root,
        ),
        el("div", { class: "pn-box" }, out),
      ),
    );
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        el("b", null, "Nothing drawn yet"),
        "Press \u201cDraw samples\u201d. A bar is what came; the line across it is what plain decoding's law expects.",
      ),
    );
    return { root, update: method.update, destroy() {} };
  }

  function breakit(env) {
    const tell = K.status(),
      list = el("div", { class: "pn-choices" }),
      out = el("div");
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Break it",
        K.lead(
          "Five mistakes that real implementations have made. Put one in and see which check notices. The text often still looks fine.",
        ),
      ),
      el("div", { class: "pn-two" }, el("div", null, list, tell.root), el("div", { class: "pn-box" }, out)),
    );
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        verdict(null, "Nothing broken yet"),
        "Choose a mistake. The engine runs with it: greedily against plain decoding, then many times by sampling against the target's law.",
      ),
    );
    let asked = false;
    async function ask() {
      asked = true;
      const got = await K.request(env.ctx, "mistakes", {}, { tell, busy: "Fetching the list\u2026" });
      if (got === null) {
        list.replaceChildren(K.button("Try again", ask));
        return;
      }
      const all = Array.isArray(got) ? got.filter((m) => m && typeof m.key === "string").slice(0, 20) : [];
      list.replaceChildren(
        ...[...all, { key: "none", title: "No mistake", why: "For comparison: both checks should stay green." }].map(
          (m) => {
            const press = el(
              "button",
              {
                type: "button",
                class: "pn-choice",
                "aria-pressed": "false",
                "data-key": m.key,
                on: { click: () => go(m.key, press) },
              },
              el("b", null, K.say(m.title || m.key, 160)),
              m.key === "none" ? el("span", null, m.why) : null,
            );
            return press;
          },
        ),
      );
    }
    async function go(key, press) {
      for (const b of list.children) {
        b.setAttribute("aria-pressed", String(b === press));
        b.disabled = true;
      }
      const paint = (x) => out.replaceChildren(...show(x));
      if (env.panel.root.classList.contains("mid"))
        out.parentElement.scrollIntoView({ block: "nearest" }); /* one column: the verdicts are below the list */
      const got = await K.request(
        env.ctx,
        "break_it",
        { mistake: key },
        { tell, busy: "Running with the mistake in it\u2026", part: paint },
      );
      for (const b of list.children) b.disabled = false;
      if (got) paint(got);
      press.focus({ preventScroll: true });
    }
    function show(got) {
      const g = got.greedy,
        d = got.distribution,
        said = g && typeof g === "object" ? g.status : null;
      const same = said === "identical" || said === "near_tie" ? true : said === "diverged" ? false : null,
        p = d && K.finite(d.p_value) ? d.p_value : null;
      const law = !d
        ? null
        : d.verdict === "pass"
          ? true
          : d.verdict === "fail"
            ? false
            : d.verdict
              ? null
              : p === null
                ? null
                : p >= 1e-3;
      const odds =
        p === null
          ? ""
          : `${K.finite(d.samples) ? count(d.samples, "sample") + ", " : ""}p = ${p < 1e-4 ? p.toExponential(0) : p.toFixed(3)}`;
      return [
        el("h3", null, K.say(got.title, 160)),
        got.why ? el("p", { class: "pn-prose" }, K.say(got.why, 800)) : null,
        el("h4", null, "Greedy certificate"),
        verdict(
          same,
          same === null
            ? said
              ? "Not run"
              : "Waiting"
            : !same
              ? "The text differs from plain decoding"
              : said === "near_tie"
                ? "Same text up to a near-tie"
                : "Same text as plain decoding",
          g && typeof g === "object" ? K.say(g.detail || "", 300) : "",
        ),
        el("h4", null, "Distribution test"),
        verdict(
          law,
          law === null
            ? d
              ? "Still drawing"
              : "Waiting"
            : law
              ? "The counts fit the target's law"
              : "The counts do not fit the target's law",
          odds,
        ),
        got.verdict ? el("p", { class: "pn-sum" }, K.say(got.verdict, 300)) : null,
      ].filter(Boolean);
    }
    return {
      root,
      update() {
        if (!asked) ask();
      },
      destroy() {},
    };
  }

  function sweep(env) {
    const cards = (env.ctx.catalogue || []).filter((c) => (c.knobs || []).some(numeric)),
      tell = K.status(),
      out = el("div");
    const method = methodField(env, cards, { on: () => knobs() });
    const knobPlace = el("div"),
      valuePlace = el("div"),
      prompt = K.field({ label: "Prompt", lines: 2, value: PROMPT, most: 2000 }),
      length = K.slider({ label: "Tokens", min: 32, max: 128, step: 16, value: 64, on() {} });
    const press = K.button("Sweep", run, "primary");
    let knob = null,
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
      const list = values.value
        .split(/[,;\s]+/)
        .filter(Boolean)
        .map(Number)
        .filter(K.finite)
        .slice(0, 8);
      if (!list.length) {
        tell.set("Give at least one number.", "error");
        return;
      }
      const got = await K.request(
        env.ctx,
        "sweep",
        { method: method.value, knob: knob.value, values: list, prompt: prompt.value, max_new_tokens: length.value },
        {
          press,
          tell,
          busy: `Running ${count(list.length, "setting")}, in turns with plain decoding\u2026`,
          part: (p) => {
            if (p && p.rows) show(p);
          },
        },
      );
      if (got) show(got);
    }
    function show(got) {
      const rows = (Array.isArray(got.rows) ? got.rows : [])
        .slice(0, 32)
        .filter((r) => r && K.finite(r.tokens_per_second));
      if (!rows.length) return;
      const plain = K.median(rows.map((r) => r.plain_tokens_per_second).filter(K.finite)),
        best = rows.reduce((a, b) => (b.tokens_per_second > a.tokens_per_second ? b : a)),
        most = rows.reduce((a, b) => (b.block_efficiency > a.block_efficiency ? b : a), best);
      shown = rows;
      chart?.stop();
      chart = P.plot.frame(`Tokens per second over ${K.say(got.knob, 40)}`, (w) => draw(w, K.say(got.knob, 40)));
      out.replaceChildren(
        K.figures([
          { label: "Best " + K.say(got.knob, 40), value: K.say(best.value, 20), strong: true },
          {
            label: "Tokens per second",
            value: rate(best.tokens_per_second),
            note: plain ? `plain: ${rate(plain)}` : "",
          },
          {
            label: "Tokens per target pass",
            value: K.finite(best.block_efficiency) ? best.block_efficiency.toFixed(2) : "\u2013",
          },
        ]),
        chart.root,
        K.small(
          `${K.finite(got.turns) ? count(got.turns, "turn") : "One run"} a setting, in shuffled order with plain decoding: differences of a few percent are noise. ${most.value === best.value ? "Here the fastest setting also keeps the most tokens per pass." : `Most tokens per pass: ${K.say(most.value, 20)}. It is not the fastest, because longer drafts cost more.`}`,
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
            rate(r.tokens_per_second),
            K.finite(r.plain_tokens_per_second) ? rate(r.plain_tokens_per_second) : "\u2013",
            K.finite(r.plain_tokens_per_second) ? times(r.tokens_per_second / r.plain_tokens_per_second) : "\u2013",
            K.finite(r.block_efficiency) ? r.block_efficiency.toFixed(2) : "\u2013",
          ]),
          "The sweep in numbers",
        ),
      );
      chart.paint();
    }
    function draw(width, name) {
      const xs = shown.map((r) => (K.finite(Number(r.value)) ? Number(r.value) : String(r.value)));
      if (globalThis.Plotly) {
        const box = el("div");
        requestAnimationFrame(() => {
          if (box.isConnected)
            P.plot.plotly(
              box,
              [
                { name: "tokens per second", x: xs, y: shown.map((r) => r.tokens_per_second) },
                { name: "tokens per target pass", x: xs, y: shown.map((r) => r.block_efficiency), second: true },
                { name: "plain decoding", x: xs, y: shown.map((r) => r.plain_tokens_per_second) },
              ],
              { xname: name, yname: "tokens per second", y2name: "tokens per pass", width },
            );
        });
        return box;
      }
      const at = xs.map((x, i) => (typeof x === "number" ? x : i)),
        ys = shown.flatMap((r) => [r.tokens_per_second, r.plain_tokens_per_second || 0]);
      return P.plot.xy({
        width,
        height: 260,
        x: { min: Math.min(...at), max: Math.max(...at, Math.min(...at) + 1), name },
        y: { min: 0, max: Math.max(...ys) * 1.12 },
        series: [
          { pts: shown.map((r, i) => [at[i], r.tokens_per_second]), name: "tokens per second", dots: 3.5 },
          { pts: shown.map((r, i) => [at[i], r.plain_tokens_per_second]), name: "plain decoding", cls: "dot" },
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
      el(
        "div",
        { class: "pn-two" },
        el(
          "div",
          { class: "pn-box pn-controls" },
          method.root,
          knobPlace,
          valuePlace,
          prompt.root,
          length.root,
          el("div", { class: "pn-row" }, press),
          tell.root,
        ),
        el("div", { class: "pn-box" }, out),
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
    return { root, update: method.update, destroy: () => chart?.stop() };
  }

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

  Object.assign((P.views = P.views || {}), { distribution, breakit, sweep });
  P.parts = { ...(P.parts || {}), pairs, spread, verdict };
})();
