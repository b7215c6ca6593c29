/* Lab: what the questions to the engine share: which method to ask about, and a verdict as a person reads it. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText, count } = SpecViz.dom;
  const K = P.kit;
  const PROMPT = "Tell a story about a small dragon.";

  /* Which method to ask about, by family. One that cannot be asked is grey, and below it stands why: what the server says of
     the models that are there, or what this view itself knows (`why`). */
  /** @param {any} env @param {Card[]} cards @param {{why?: (card: Card) => string, on?: (key: string) => void}} [own] */
  function methodField(env, cards, { why = () => "", on = () => {} } = {}) {
    const field = K.select({ label: "Method", options: [], on }),
      list = el("dl", { class: "pn-why" }),
      summary = el("summary");
    const more = el("details", { class: "pn-more" }, summary, list),
      root = el("div", null, field.root, more);
    let off = {},
      announced = false;
    const reason = (c) => (typeof off[c.key] === "string" && off[c.key]) || why(c);
    function fill() {
      const held = field.value || "speculative",
        grey = cards.filter(reason),
        open = cards.filter((c) => !reason(c));
      const option = (c) =>
        el(
          "option",
          { value: c.key, disabled: Boolean(reason(c)), title: reason(c) ? K.say(reason(c), 300) : null },
          K.say(c.title, 90) + (reason(c) ? SpecViz.messages.say("choice.off") : ""),
        );
      const families = [...new Set(cards.map((c) => c.family))];
      field.input.replaceChildren(
        ...families.map((f) =>
          el("optgroup", { label: K.say(f, 60) }, cards.filter((c) => c.family === f).map(option)),
        ),
      );
      const kept = open.find((c) => c.key === held) || open[0];
      if (kept) field.input.value = kept.key;
      setText(summary, `${count(grey.length, "method")} cannot be asked here, and why`);
      list.replaceChildren(
        ...grey.flatMap((c) => [el("dt", null, K.say(c.title, 90)), el("dd", null, K.say(reason(c), 300))]),
      );
      more.hidden = !grey.length;
      if (announced && kept && kept.key !== held) on(kept.key);
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
            announced = true;
            fill();
          }
        }),
    };
  }

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

  /* Where the tokens of whole answers lie in the target's distribution, most probable first: flat where the method is exact, bent
     where something is wrong. Neighbouring bins share a bar. */
  function places(got, from) {
    const bins = got && Array.isArray(got.histogram) ? got.histogram.slice(0, 64).map((x) => Number(x) || 0) : [],
      n = K.sum(bins);
    if (bins.length < 2 || !n) return null;
    const list = [];
    for (let i = 0; i < bins.length; i += 2) list.push((bins[i] || 0) + (bins[i + 1] || 0));
    const p = K.finite(got.p) ? got.p : null,
      even = n / list.length,
      top = Math.max(even * 2, ...list);
    return el(
      "div",
      { class: "pn-places" },
      el("h4", null, "Whole answers"),
      K.small(
        "Each token's place in the target's distribution, from its most probable token (top) to its rarest. " +
          `Flat is right; the line is what flat would be. ${count(n, "token")}` +
          (p === null ? "." : `, p = ${SpecViz.dom.f3(p)}.`),
      ),
      P.plot.bars(
        list.map((x, i) => ({
          name: i === 0 ? "most probable" : i === list.length - 1 ? "rarest" : "",
          value: x,
          mark: even,
          show: String(x),
        })),
        {
          max: top * 1.05,
          label: "Places of tokens in the target's distribution",
          caption:
            "Whole answers: where each token stood, from the most probable to the rarest. Lines across: what flat would be.",
          from,
        },
      ),
    );
  }

  P.ask = { PROMPT, methodField, verdict, places };
})();
