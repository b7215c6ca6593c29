/* Lab: do sampled tokens follow the target's distribution? One request to the server; the counts next to the expected ones. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, count } = SpecViz.dom;
  const K = P.kit,
    M = P.maths;

  const { PROMPT, methodField, verdict, places } = P.ask;

  /* Counts and probabilities side by side, as lists, whatever form the server chose (lists, or objects by token). */
  function pairs(got) {
    const probs = got && got.plain_law,
      cnt = got && got.method_counts;
    if (!probs || !cnt || typeof probs !== "object" || typeof cnt !== "object") return null;
    const names = Array.isArray(got.tokens) ? got.tokens : [],
      keys = Array.isArray(probs) ? probs.map((_, i) => i) : [...new Set([...Object.keys(probs), ...Object.keys(cnt)])];
    const list = keys.slice(0, 4096).map((k, i) => ({
      name: K.say(Array.isArray(probs) ? (names[i] ?? "#" + i) : k, 40),
      count: Number(cnt[k]) || 0,
      probs: Number(probs[k]) || 0,
    }));
    return list.length ? list : null;
  }

  /* What the odds of such counts say, in a sentence; none while samples are still drawn. */
  function meaning(good, p, impossible) {
    if (good) {
      const odds = 1 / p < 10 ? (1 / p).toFixed(1) : Math.round(1 / p);
      const often = p > 0.99 ? "always" : "once in " + odds + " tries";
      return "A difference this large or larger comes by chance about " + often + ".";
    }
    if (impossible) return "A token came that the target never says.";
    return good === false ? "Chance alone would hardly do this." : "";
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
    const temperature = K.slider({
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
    let drawn = null; /* what was asked for when what is shown was drawn */
    async function run() {
      drawn = {
        method: method.value,
        knobs: {},
        prompt: prompt.value,
        samples: many.value,
        temperature: temperature.value,
      };
      const got = await K.request(env.ctx, "distribution", drawn, {
        press,
        tell,
        busy: `Drawing ${many.value} continuations, each from a fresh seed\u2026`,
        part: (p) => out.replaceChildren(show(p)),
      });
      if (got) out.replaceChildren(show(got));
    }
    function show(got) {
      const list = pairs(got);
      if (!list) return K.small("The server's answer held no counts.");
      const counts = list.map((x) => x.count),
        n = K.sum(counts),
        cells = M.cells(
          counts,
          list.map((x) => x.probs),
        ),
        p = K.finite(got.p_value) ? got.p_value : null;
      const impossible = list.some((x) => x.count > 0 && !(x.probs > 0)),
        few = got.verdict === "few",
        good =
          got.verdict === "open" || few || p === null
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
      const from = () =>
        SpecViz.save.own(
          `${count(n, "sample")} of ${drawn.method}, temperature ${drawn.temperature}. Prompt: ` +
            `\u201c${drawn.prompt.slice(0, 200)}\u201d.`,
        );
      const rows = cells.slice(0, 16),
        x2 = K.finite(got.chi_square) ? got.chi_square.toFixed(1) : "\u2013",
        shown = SpecViz.dom.f3(p);
      return el(
        "div",
        null,
        verdict(
          good,
          few
            ? SpecViz.messages.say("samples.few")
            : good === null
              ? "Still drawing"
              : good
                ? "No difference from the target's distribution"
                : "The samples do not follow the target's distribution",
          few
            ? K.say(got.said || "", 400)
            : `${count(n, "sample")}, \u03c7\u00b2 = ${x2}, p = ${shown}. ` + meaning(good, p, impossible),
        ),
        places(got.places, from),
        el(
          "div",
          { class: "pn-keys" },
          el("span", null, el("i", { class: "pn-sw full" }), "drawn"),
          el("span", null, el("i", { class: "pn-sw tick" }), "expected from the target's distribution"),
        ),
        P.plot.bars(
          rows.map((c) => ({
            name: name(c),
            value: c.count,
            mark: c.expect,
            show: `${c.count} of ${c.expect.toFixed(1)}`,
          })),
          {
            max: top * 1.05,
            label: "Counts against the distribution",
            caption: "Bars: what was drawn. Lines across: what the target's distribution expects.",
            from,
          },
        ),
        cells.length > rows.length ? K.small(`${cells.length - rows.length} more cells are in the test.`) : null,
        el(
          "details",
          { class: "pn-more" },
          el("summary", null, "How the sum is made"),
          el(
            "p",
            { class: "pn-small" },
            "\u03c7\u00b2 adds (drawn \u2212 expected)\u00b2 / expected over the cells. A cell is a " +
              "beginning of the continuation (with \u2026, all that goes on otherwise); beginnings too rare to " +
              "count share one.",
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
          "Draw the same continuation many times with a method and count what came. If the method is exact, " +
            "the counts follow the distribution of plain decoding.",
        ),
      ),
      K.twoColumns(
        [method.root, prompt.root, temperature.root, many.root, el("div", { class: "pn-row" }, press), tell.root],
        [out],
      ),
    );
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        el("b", null, "Nothing drawn yet"),
        "Press \u201cDraw samples\u201d. A bar is what came; the line across it is what plain decoding's distribution expects.",
      ),
    );
    return { root, update: method.update, destroy() {} };
  }

  (P.views = P.views || {}).distribution = distribution;
})();
