/* A game of three tokens with draft distribution q and target distribution p. Runs speculative sampling many times and plots
   the counts against p. One switch forgets the residual, the classic mistake; then the counts leave p. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText } = SpecViz.dom;
  const K = P.kit;
  const TOKENS = ["blue", "clear", "dark"],
    TARGET = [0.5, 0.3, 0.2],
    DRAFT = [0.2, 0.7, 0.1];

  /* Numbers from a seed (mulberry32), so that a game can be repeated. */
  function uniforms(seed) {
    let a = seed >>> 0;
    return () => {
      a = (a + 0x6d2b79f5) >>> 0;
      let t = Math.imul(a ^ (a >>> 15), a | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  }
  function draw(probs, u) {
    let s = 0;
    for (let i = 0; i < probs.length; i++) {
      s += probs[i];
      if (u < s) return i;
    }
    return probs.length - 1;
  }
  /* One token by speculative sampling: {token, kept}. residual: draw again from max(0, p - q); else, wrongly, from p. */
  function roll(p, q, rnd, residual = true) {
    const x = draw(q, rnd());
    if (rnd() < Math.min(1, p[x] / q[x])) return { token: x, kept: true };
    const left = p.map((v, i) => (residual ? Math.max(0, v - q[i]) : v)),
      z = K.sum(left);
    return {
      token: draw(
        left.map((v) => v / z),
        rnd(),
      ),
      kept: false,
    };
  }
  function many(n, seed, residual = true, p = TARGET, q = DRAFT) {
    const rnd = uniforms(seed),
      counts = p.map(() => 0);
    let kept = 0;
    for (let i = 0; i < n; i++) {
      const r = roll(p, q, rnd, residual);
      counts[r.token]++;
      kept += Number(r.kept);
    }
    return { counts, kept };
  }

  function widget() {
    let residual = true,
      seed = 7,
      total = 0,
      counts = [0, 0, 0],
      kept = 0;
    const bars = el("div"),
      note = K.small(),
      press = K.button("Draw 1,000 times", () => {
        const r = many(1000, ++seed, residual);
        total += 1000;
        kept += r.kept;
        counts = counts.map((c, i) => c + r.counts[i]);
        paint();
      });
    const box = el(
      "label",
      { class: "pn-check" },
      el("input", {
        type: "checkbox",
        checked: true,
        on: {
          change: (e) => {
            residual = e.target.checked;
            total = kept = 0;
            counts = [0, 0, 0];
            paint();
          },
        },
      }),
      "redraw from the residual",
    );
    function paint() {
      bars.replaceChildren(
        P.plot.bars(
          TOKENS.map((t, i) => ({
            name: t,
            value: total ? counts[i] / total : 0,
            mark: TARGET[i],
            show: total ? (counts[i] / total).toFixed(3) : "\u2013",
          })),
          {
            max: 0.8,
            label: "What came, against the target's probabilities",
            caption: "Bars: what came. Lines across: p, what the target's distribution gives.",
            from: () =>
              SpecViz.save.own(
                SpecViz.messages.say("game.source", {
                  draws: total.toLocaleString("en"),
                  q: DRAFT.join(", "),
                  p: TARGET.join(", "),
                }) +
                  `${residual ? "redrawn from the residual" : "without the residual, as the classic mistake has it"}.`,
              ),
          },
        ),
      );
      setText(
        note,
        total
          ? `${total.toLocaleString("en")} draws, ${Math.round((100 * kept) / total)} % of the guesses kept. The mark is p.`
          : `q = ${DRAFT.join(", ")}; p = ${TARGET.join(", ")}. The mark is p.`,
      );
    }
    paint();
    return el("div", { class: "pn-game" }, bars, note, el("div", { class: "pn-row" }, press, box));
  }

  P.samplingGame = { widget, many, roll };
})();
