/* Learn: which method for one's own server: model, engine, machine, users and what is written. The answer comes from the
   table that `specviz recommend` reads too: whether speculation pays, and three methods, each with its figure, where that
   comes from, all that differs, the range of all figures, and the flags with names filled in. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times } = SpecViz.dom;
  const K = P.kit;
  const TEXTS = {
    "server.lead":
      "Say what you serve. The methods come from published and measured speed-ups, each with its source; the flags from the " +
      "engine\u2019s documentation.",
    "server.none": "No figure is known for this method: measure it on your own prompts.",
    "server.slower": "Slower than plain decoding there.",
    "server.differs": "Not your case: ",
    "server.unsaid": "not stated",
    "server.range": "All {count} figures for about as many users: {low} to {high}.",
    "server.range.all": "No figure is for about as many users. For others: {low} to {high}, {count} in all.",
    "server.fill": "To fill in: ",
    "server.measure": "Measure before you decide: a speed-up depends on the model, the text and the machine.",
    "server.terminal": "In a terminal: ",
    "server.rates": "By your rates, draft {best}: about {times} times plain decoding, {tokens} tokens a pass.",
    "server.rates.none": "By your rates, no draft length is faster than plain decoding.",
    "server.rates.lengths": "By draft length: ",
    "server.rates.draft": "What drafting costs is not in it: its size is unknown.",
    "server.rates.card": "For this machine no data sheet is here, so verified tokens count as free.",
    "server.rates.model": "Arithmetic on your rates, sizes and the card\u2019s data sheet; nothing is measured here.",
    "pays.true": "Speculation pays.",
    "pays.false": "Use plain decoding: speculation will not pay.",
    "pays.null": "It depends: measure first.",
  };
  const REASONS = {
    "rates.pay": "Your own measured rates decide.",
    "rates.lose": "Your own measured rates decide.",
    "rates.draft": "By your rates little is gained, and nothing where a draft token costs a tenth of a pass.",
    "draft.large":
      "Its draft model is too large for it: even with 7 of 10 draft tokens accepted it would not be clearly faster.",
    "users.none": "No method has a figure above plain decoding for about as many users.",
    "users.between":
      "No figure is for about as many users. Some for more users, or of a source that does not state them, lie above plain " +
      "decoding.",
    "experts.none": "No method has a figure above plain decoding for a mixture of experts.",
    "figures.none": "No method has a figure above plain decoding.",
    "figures.low": "The nearest figure is within 5 % of plain decoding.",
    "experts.named": "Its name says that it is a mixture of experts.",
    "experts.measure": "Each draft token reads more experts, and what that costs depends on the engine.",
    "figures.range": "The nearest figure is the first below.",
  };
  /* What stands in a command where no name is known. */
  const BLANKS = {
    MODEL: "MODEL, your model",
    "EAGLE3-HEAD": "EAGLE3-HEAD, a head trained for your model (none is known here)",
    DRAFT: "DRAFT, a small model with your model\u2019s tokenizer",
  };
  const blanks = (flags) => Object.keys(BLANKS).filter((word) => new RegExp(`(^|[^\\w-])${word}\\b`).test(flags));
  const DIFFERS = {
    task: "task",
    card: "machine",
    engine: "engine",
    model: "model",
    experts: "mixture of experts",
    users: "requests at once",
    temperature: "temperature",
  };

  /* A source is an arXiv number, an address, or a page of this project's docs (named, not linked). */
  function source(text) {
    if (!/^https:\/\//.test(text)) return K.paper(/^\d{4}\.\d{4,5}$/.test(text) ? "arXiv " + text : text);
    return el("a", { href: text, target: "_blank", rel: "noopener noreferrer" }, new URL(text).hostname);
  }

  function card(one, place, env) {
    const tell = K.status(),
      f = one.figure,
      missing = blanks(one.flags);
    return el(
      "section",
      { class: "pn-box pn-choiceof", "data-method": one.method, "aria-label": one.title },
      el(
        "div",
        { class: "t" },
        el("h3", null, `${place}. ${K.say(one.title, 80)}`),
        el("b", { class: "v" }, f ? times(f.speedup) : "\u2013"),
      ),
      f
        ? el(
            "p",
            { class: "pn-small" },
            K.say(f.setting, 200),
            f.source ? " \u00b7 " : "",
            f.source ? source(K.say(f.source, 200)) : "",
            f.speedup < 1 ? " " + TEXTS["server.slower"] : "",
          )
        : K.small(TEXTS["server.none"]),
      one.differs.length
        ? el(
            "p",
            { class: "pn-small", "data-message": "server.differs" },
            TEXTS["server.differs"] + one.differs.map(difference).join("; ") + ".",
          )
        : null,
      one.range ? el("p", { class: "pn-small", "data-message": "server.range" }, range(one.range)) : null,
      el("p", null, K.paper(one.note)),
      el("pre", { class: "pn-flags", tabindex: "0", "aria-label": "Command" }, K.say(one.flags, 1200)),
      missing.length
        ? el(
            "p",
            { class: "pn-small", "data-message": "server.fill" },
            TEXTS["server.fill"] + missing.map((word) => BLANKS[word]).join("; ") + ".",
          )
        : null,
      el(
        "div",
        { class: "pn-row" },
        K.button("Copy", () => K.copy(one.flags, tell)),
        one.card && env.ctx.catalogue?.some((c) => c.key === one.card)
          ? K.button("See its card", () => {
              env.panel.show("methods");
              env.panel.view().pick?.(one.card);
            })
          : null,
        one.paper ? el("span", { class: "pn-small" }, K.paper("arXiv " + one.paper)) : null,
        tell.root,
      ),
    );
  }

  const difference = ({ what, theirs }) =>
    `${DIFFERS[what] || K.say(what, 40)} ${theirs ? K.say(theirs, 60) : TEXTS["server.unsaid"]}`;
  const filled = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => K.say(values[name], 20));
  const range = ({ low, high, count, users }) =>
    filled(TEXTS[users ? "server.range" : "server.range.all"], { low: low.toFixed(2), high: high.toFixed(2), count });

  /* Whether it pays, and why. */
  function verdict(found) {
    return el(
      "section",
      { class: "pn-box pn-pays", "data-pays": String(found.verdict.pays) },
      el("h3", null, TEXTS["pays." + found.verdict.pays] || ""),
      found.verdict.reasons.map((code) => el("p", { "data-message": code }, REASONS[code] || K.say(code, 40))),
      found.measured ? estimated(found.measured) : null,
    );
  }
  function estimated(m) {
    const place = m.best - 1;
    return [
      el(
        "p",
        { "data-message": m.best ? "server.rates" : "server.rates.none" },
        m.best
          ? filled(TEXTS["server.rates"], {
              best: m.best === 1 ? "1 token" : `${m.best} tokens`,
              times: m.speedups[place].toFixed(2),
              tokens: m.tokens[place].toFixed(2),
            })
          : TEXTS["server.rates.none"],
      ),
      K.small(
        TEXTS["server.rates.lengths"],
        m.speedups.map((x, i) => `${i + 1}: ${x.toFixed(2)}`).join(", "),
        ". ",
        m.unknown.map((what) => TEXTS["server.rates." + what] + " ").join(""),
        TEXTS["server.rates.model"],
      ),
    ];
  }

  const quoted = (value) => (/^[\w.:/-]+$/.test(String(value)) ? value : `'${String(value).replace(/'/g, "")}'`);
  const command = (asked) =>
    "specviz recommend " +
    Object.entries(asked)
      .filter(([, answer]) => answer !== "")
      .map(([question, answer]) => `--${question} ${quoted(answer)}`)
      .join(" ");

  /* The control of a question: one of its answers, a number, or a text; the model's name has the known ones beside it. */
  function control(key, q, on) {
    if (q.answers) return K.select({ label: q.title, options: Object.entries(q.answers), on });
    if (q.least !== undefined)
      return K.field({ label: q.title, type: "number", value: String(q.least), min: q.least, max: q.most, on });
    if (!q.options) {
      const rates = K.field({ label: q.title, lines: 2, on });
      rates.root.append(el("span", { class: "pn-help" }, q.help));
      return rates;
    }
    const id = "pn-models",
      one = K.field({ label: q.title, most: 120, on, list: id });
    one.root.append(
      el(
        "datalist",
        { id },
        Object.keys(q.options).map((name) => el("option", { value: name })),
      ),
      el("span", { class: "pn-help" }, q.help),
    );
    return one;
  }

  function view(env) {
    const tell = K.status(),
      controls = el("div", { class: "pn-box pn-controls" }),
      out = el("div", { class: "pn-choices" }),
      picks = new Map();
    const root = el(
      "div",
      { class: "pn-view" },
      K.head("Which one for my server?", K.lead(TEXTS["server.lead"])),
      el("div", { class: "pn-two" }, controls, el("div", null, tell.root, out)),
    );
    let begun = false,
      turn = 0,
      later = 0,
      known = {};
    const own = {};

    async function begin() {
      const questions = await K.request(env.ctx, "questions", {}, { tell });
      if (!questions) {
        begun = false;
        return;
      }
      known = questions.name?.options || {};
      for (const [key, q] of Object.entries(questions)) picks.set(key, control(key, q, q.answers ? answer : soon));
      controls.replaceChildren(...[...picks.values()].map((p) => p.root));
      answer();
    }
    /* Typing asks once it pauses. */
    function soon() {
      clearTimeout(later);
      later = setTimeout(answer, 400);
    }
    function value(key, pick) {
      if (pick.input.type !== "number") return pick.value.trim();
      const typed = Math.trunc(Number(pick.value));
      return Math.min(Number(pick.input.max), Math.max(Number(pick.input.min), typed || 1));
    }
    /* A known model answers the questions about it: their controls show it and are not asked, and hold the visitor's own
       answers again with another name. */
    function settle() {
      const name = picks.get("name")?.value.trim().toLowerCase(),
        model = Object.entries(known).find(([one]) => one.toLowerCase() === name)?.[1] || {};
      for (const key of ["model", "experts"]) {
        const pick = picks.get(key);
        if (!pick) continue;
        if (!pick.input.disabled) own[key] = pick.value;
        pick.input.value = model[key] ?? own[key];
        pick.input.disabled = Boolean(model[key]);
      }
    }
    async function answer() {
      settle();
      const mine = ++turn,
        asked = Object.fromEntries([...picks].map(([key, p]) => [key, value(key, p)])),
        found = await K.request(env.ctx, "recommend", asked, { tell });
      if (!found || mine !== turn) return;
      out.replaceChildren(
        verdict(found),
        ...found.answers.map((one, i) => card(one, i + 1, env)),
        found.few
          ? el(
              "p",
              { class: "pn-small", "data-message": "server.few" },
              `Only ${found.answers.length} here: ${K.say(found.few, 200)}.`,
            )
          : "",
        ...Object.entries(found.warnings || {}).map(([code, sentence]) =>
          el("p", { class: "pn-small", "data-message": code }, K.say(sentence, 600)),
        ),
        K.small(
          TEXTS["server.measure"] + " ",
          "Flags: ",
          source(K.say(found.documents, 200)),
          ". " + TEXTS["server.terminal"],
          el("code", null, command(found.asked)),
        ),
      );
    }
    return {
      root,
      update() {
        if (begun) return;
        begun = true;
        begin();
      },
      destroy: () => clearTimeout(later),
    };
  }

  (P.views = P.views || {}).server = view;
})();
