/* Lab: long texts. What a pass costs by the length of the text, measured as far as the target reads, and what drafting from
   less of its memory earns: measured there, and extrapolated beyond by the line through the passes. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times, span } = SpecViz.dom;
  const K = P.kit;
  const DASHES = ["", "dash", "long"];

  /* A server's answer, whatever came: numbers that are numbers, words that are short. */
  function parse(got) {
    const list = (x) => (Array.isArray(x) ? x.slice(0, 64) : []),
      positive = (x) => K.finite(x) && x > 0;
    const lengths = list(got && got.lengths).filter(positive),
      seconds = list(got && got.seconds).filter(positive),
      far = list(got && got.extrapolated).filter(positive);
    if (!lengths.length || lengths.length !== seconds.length || !positive(got.base)) return null;
    const methods = list(got.methods)
      .slice(0, 8)
      .filter((m) => m && list(m.extrapolated).length === far.length && list(m.extrapolated).every(positive))
      .map((m) => ({
        title: K.say(m.title, 60),
        tokens: K.finite(m.tokens) ? m.tokens : 0,
        measured: positive(m.measured) ? m.measured : null,
        pts: far.map((n, i) => [n, m.extrapolated[i]]),
      }));
    const per = K.finite(got.token) && got.token > 0 ? got.token : 0;
    return { lengths, seconds, base: got.base, per, far, methods, machine: K.say(got.machine, 120) };
  }

  function contexts(env) {
    const tell = K.status(),
      press = K.button("Measure here", measure, "primary"),
      figs = el("div"),
      caption = el("div", { class: "pn-prose" });
    const plot = P.plot.frame("Speed-up over the length of the text", draw, () =>
      SpecViz.save.own(
        `Measured up to ${tokens(longest())}, extrapolated beyond, on ${answer.machine || "the server's machine"}.`,
      ),
    );
    let answer = null,
      lane = null;
    const tokens = (n) => Math.round(n).toLocaleString("en") + " tokens",
      longest = () => (answer ? answer.lengths[answer.lengths.length - 1] : 0);

    async function measure() {
      const got = await K.request(
        env.ctx,
        "context_costs",
        { target: lane ? lane.targetName : "" },
        {
          press,
          tell,
          busy: "Measuring passes over longer and longer texts, then three methods at the longest\u2026",
          part: (p) => {
            answer = parse(p) || answer;
            paint();
          },
        },
      );
      if (got) answer = parse(got);
      if (got && !answer) tell.set("The server's answer held no passes.", "error");
      paint();
    }
    function draw(width) {
      if (!answer) return el("p", { class: "pn-small" }, SpecViz.messages.say("panel.empty") + ".");
      if (!answer.methods.length)
        return el("p", { class: "pn-small" }, "No method that drafts from less memory has run yet.");
      const ys = answer.methods.flatMap((m) => [...m.pts.map((p) => p[1]), m.measured || 0]);
      return P.plot.xy({
        width,
        height: 280,
        x: { min: answer.far[0], max: answer.far[answer.far.length - 1], log: true, name: "tokens of text" },
        y: { min: 0, max: Math.max(1.5, ...ys) * 1.15, show: (v) => v + "\u00d7" },
        rules: [
          { y: 1, name: "plain decoding" },
          { x: longest(), name: SpecViz.messages.say("contexts.measured") },
        ],
        series: answer.methods.flatMap((m, i) => [
          { pts: m.pts, name: m.title, cls: DASHES[i % DASHES.length] },
          { pts: m.measured ? [[longest(), m.measured]] : [], bare: true, dots: 4 },
        ]),
      });
    }
    function paint() {
      plot.paint();
      if (!answer) return;
      const even = answer.per > 0 ? answer.base / answer.per : null;
      figs.replaceChildren(
        K.figures([
          { label: `A pass over ${tokens(answer.lengths[0])}`, value: span(answer.seconds[0]) },
          { label: `Over ${tokens(longest())}`, value: span(answer.seconds[answer.seconds.length - 1]) },
          {
            label: "The text costs as much as the weights",
            value: even
              ? SpecViz.messages.say("contexts.even", { tokens: tokens(Number(even.toPrecision(2))) })
              : "\u2013",
            note: even ? "by the line through these passes" : "longer texts cost nothing more here",
          },
        ]),
      );
      caption.replaceChildren(
        ...answer.methods.map((m) =>
          el(
            "p",
            null,
            SpecViz.messages.say("contexts.method", {
              title: m.title,
              each: m.tokens.toFixed(2),
              at: tokens(longest()),
              speed: m.measured ? times(m.measured) : "\u2013",
            }) +
              SpecViz.messages.say("contexts.method.beyond", {
                speed: times(m.pts[m.pts.length - 1][1]),
                at: tokens(m.pts[m.pts.length - 1][0]),
              }),
          ),
        ),
        el(
          "p",
          null,
          "Extrapolated: tokens a round stay what they were, a pass costs what the line says, and rounded numbers cost as " +
            "little to read as their bits. Left out: choosing, copying and rounding what is kept. " +
            (answer.machine ? `On ${answer.machine}.` : ""),
        ),
      );
    }
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Long texts",
        K.lead(
          "The longer the text, the more of a pass goes into reading it again. MagicDec, TriForce and QuantSpec draft from " +
            "a part of that memory, or a rough copy; what that earns shows where the text costs more than the weights.",
        ),
      ),
      el(
        "p",
        { class: "pn-flag" },
        el("b", null, SpecViz.messages.say("contexts.about")),
        " The dots are measured; the lines are worked out.",
      ),
      el("div", { class: "pn-box" }, figs, plot.root, caption),
      el(
        "div",
        { class: "pn-row" },
        press,
        el("span", { class: "pn-small" }, "Reads up to 2,048 tokens on the machine this page runs on; half a minute."),
        tell.root,
      ),
    );
    return {
      root,
      update() {
        lane = env.lane() || env.lanes()[0] || null;
        paint();
      },
      destroy: () => plot.stop(),
    };
  }

  (P.views = P.views || {}).contexts = contexts;
})();
