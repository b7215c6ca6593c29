/* Lab: what a drafter of a set acceptance would give here (the oracle, which proposes wrong tokens on purpose), and how
   much of a draft is worth verifying (choices of the draft's length beside each other). Both race on a few prompts
   beside plain decoding. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times, count } = SpecViz.dom;
  const K = P.kit;
  const PROMPTS = [
    "Explain how a refrigerator works.",
    "Write a Python function that counts the words in a text.",
    "Repeat this list and add two more: red, green, blue, yellow.",
  ];
  const TEXTS = {
    "dial.lead":
      "Set how often a draft token is right and watch what that earns on this machine. Wrong tokens are proposed on " +
      "purpose and rejected as any other, so the text stays plain decoding\u2019s, and passes take real time.",
    "dial.free": "Drafting costs nothing here: the time that a drafter takes comes on top.",
    "dial.gain":
      "Such a drafter would be {value} as fast as plain decoding here ({low} to {high}), at {tokens} tokens a pass.",
    "dial.level": "Such a drafter would make no clear difference here ({low} to {high}), at {tokens} tokens a pass.",
    "dial.loss":
      "Such a drafter would be slower than plain decoding here: {value} ({low} to {high}), at {tokens} tokens a pass.",
    "dial.unnamed": "Times are in doubt on this machine now: {tokens} tokens a pass is what can be said.",
    "dial.early": "{tokens} tokens a pass so far. Its speed is said from three prompts on.",
    "dial.draft": "Your draft model on the same prompts: {value}, {tokens} tokens a pass.",
    "dial.idle": "Set an acceptance and press \u201cTry it\u201d.",
    "verify.lead":
      "A pass takes longer the more draft tokens it verifies, and late ones are seldom reached. Each method here decides " +
      "in its own way how much of a draft is verified.",
    "verify.idle": "Press \u201cRace them\u201d: five methods, three prompts.",
    "verify.rows": "Tokens a pass are what it earns, verified tokens a pass what it costs.",
  };
  const filled = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);

  /* The form that both have: what to ask for, Stop, and what came. asks: returns the methods; show(got): what stands there. */
  function racing(env, { title, lead, idle, press: name, fields, asks, show }) {
    const tell = K.status(),
      out = el("div", null, el("div", { class: "pn-idle" }, el("b", null, "Nothing was run yet"), idle)),
      length = K.slider({ label: "Tokens an answer", min: 16, max: 128, step: 16, value: 48, on() {} }),
      temperature = K.slider({ label: "Temperature", min: 0, max: 1.5, step: 0.1, value: 0, on() {} }),
      prompts = K.field({ label: "Prompts, one a line", lines: 4, value: PROMPTS.join("\n"), most: 8000 }),
      press = K.button(name, run, "primary"),
      stop = K.button("Stop", () => control?.abort());
    stop.disabled = true;
    let control = null;
    async function run() {
      const list = P.prompts.read(prompts.value).slice(0, 8);
      if (!list.length) return tell.set("Give at least one prompt.", "error");
      control = new AbortController();
      stop.disabled = false;
      const payload = {
        prompts: list,
        methods: asks(),
        max_new_tokens: length.value,
        temperature: temperature.value,
      };
      const got = await K.request(env.ctx, "prompt_set", payload, {
        press,
        tell,
        signal: control.signal,
        busy: "Warming up\u2026",
        part: (p) => {
          if (!p || !Array.isArray(p.rows)) return;
          tell.set(`${K.say(p.done, 6)} of ${K.say(p.of, 6)} prompts`, "busy");
          out.replaceChildren(...show(p));
        },
      });
      stop.disabled = true;
      if (got?.rows) out.replaceChildren(...show(got));
    }
    const controls = [
      ...fields,
      length.root,
      temperature.root,
      prompts.root,
      el("div", { class: "pn-row" }, press, stop),
    ];
    return {
      root: el("div", { class: "pn-view" }, K.head(title, K.lead(lead)), K.twoColumns([...controls, tell.root], [out])),
      update() {},
      destroy: () => control?.abort(),
    };
  }
  const first = (x) => (Array.isArray(x) ? x[0] : null);
  const named = (row) => row.named !== false && Array.isArray(row.walltime_speedup);
  const each = (row) => (K.finite(first(row.block_efficiency)) ? first(row.block_efficiency).toFixed(2) : "\u2013");
  /* Three prompts give an interval of 75 %; fewer give none that means anything. */
  const sure = (row) => row.confidence >= 0.75;
  const triple = (row, x, form) =>
    !Array.isArray(x) ? "\u2013" : sure(row) ? `${form(x[0])} (${form(x[1])} to ${form(x[2])})` : form(x[0]);

  /* The sentence about a row: by its interval, never by its value alone. */
  function gain(row) {
    if (!sure(row)) return { id: "dial.early", values: { tokens: each(row) } };
    if (!named(row)) return { id: "dial.unnamed", values: { tokens: each(row) } };
    const [value, low, high] = row.walltime_speedup,
      id = low > 1 ? "dial.gain" : high < 1 ? "dial.loss" : "dial.level";
    return { id, values: { value: times(value), low: times(low), high: times(high), tokens: each(row) } };
  }
  function table(got) {
    const rows = got.rows.slice(0, 8);
    return K.table(
      [
        { name: "method" },
        { name: "times plain decoding", num: true },
        { name: "tokens a pass", num: true },
        { name: "verified tokens a pass", num: true },
      ],
      rows.map((r) => [
        K.say(r.title, 80),
        named(r) ? triple(r, r.walltime_speedup, times) : K.unnamed(),
        triple(r, r.block_efficiency, (x) => x.toFixed(2)),
        triple(r, r.rows_per_pass, (x) => x.toFixed(1)),
      ]),
      (got.done === 1 ? "One prompt" : `Medians over ${count(got.done, "prompt")}`) +
        (rows.every(sure) ? `, in brackets the interval (${Math.round(100 * rows[0].confidence)} %)` : "") +
        `. ${K.say(got.machine, 160)}.`,
    );
  }

  function dial(env) {
    const by = K.select({
        label: "How is it said?",
        options: [
          ["acceptance", "acceptance of a draft token"],
          ["mean length", "tokens a pass"],
          ["rates", "rates by place, from a server"],
        ],
        on: shown,
      }),
      acceptance = K.slider({ label: "Acceptance", min: 0.05, max: 1, step: 0.05, value: 0.8, on() {} }),
      length = K.slider({ label: "Tokens a pass", min: 1, max: 8, step: 0.1, value: 2.5, on() {} }),
      rates = K.field({ label: "Rates by place", value: "0.8, 0.6, 0.45, 0.35", most: 200 }),
      gamma = K.slider({ label: "Draft length", min: 1, max: 16, value: 4, on() {} });
    const parts = { acceptance, "mean length": length, rates };
    function shown() {
      for (const [key, part] of Object.entries(parts)) part.root.hidden = key !== by.value;
      gamma.root.hidden = by.value === "rates";
    }
    shown();
    const NAMES = { "mean length": "length" };
    const knobs = () => ({
      by: by.value,
      [NAMES[by.value] || by.value]: parts[by.value].value,
      ...(by.value === "rates" ? {} : { gamma: gamma.value }),
    });
    return racing(env, {
      title: "Another drafter",
      lead: TEXTS["dial.lead"],
      idle: TEXTS["dial.idle"],
      press: "Try it",
      fields: [by.root, acceptance.root, length.root, rates.root, gamma.root],
      asks: () => [{ method: "oracle", knobs: knobs() }, "speculative"],
      show: (got) => {
        const mine = got.rows.find((r) => String(r.method).startsWith("oracle")),
          draft = got.rows.find((r) => String(r.method).startsWith("speculative"));
        if (!mine) return [table(got)];
        const said = gain(mine);
        return [
          el("p", { class: "pn-prose", "data-message": said.id }, filled(TEXTS[said.id], said.values)),
          draft && named(draft) && sure(draft)
            ? el(
                "p",
                { class: "pn-prose", "data-message": "dial.draft" },
                filled(TEXTS["dial.draft"], {
                  value: triple(draft, draft.walltime_speedup, times),
                  tokens: each(draft),
                }),
              )
            : "",
          K.small(TEXTS["dial.free"]),
          table(got),
        ];
      },
    });
  }

  function verify(env) {
    return racing(env, {
      title: "How much to verify",
      lead: TEXTS["verify.lead"],
      idle: TEXTS["verify.idle"],
      press: "Race them",
      fields: [],
      asks: () => [
        { method: "speculative", knobs: { gamma: 4 } },
        { method: "speculative", knobs: { gamma: 8 } },
        { method: "adaptive_verification", knobs: { most: 8 } },
        { method: "cost_ratio", knobs: { most: 8 } },
        { method: "smartspec", knobs: { most: 8 } },
      ],
      show: (got) => [K.small(TEXTS["verify.rows"]), table(got)],
    });
  }

  (P.views = P.views || {}).dial = dial;
  P.views.verify = verify;
})();
