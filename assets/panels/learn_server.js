/* Learn: which method for one's own server. Four questions and the temperature; the answer is the server's, from the table that
   `specviz recommend` reads too: three methods, each with its figure, where that comes from, what differs, and the flags. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times } = SpecViz.dom;
  const K = P.kit;
  const TEXTS = {
    "server.lead":
      "Answer five questions. The methods come from published and measured speed-ups, each with its source; the flags from the " +
      "engine\u2019s documentation.",
    "server.none": "No figure is known for this method: measure it on your own prompts.",
    "server.slower": "Slower than plain decoding there.",
    "server.differs": "Not your case in: ",
    "server.measure": "Measure before you decide: a speed-up depends on the model, the text and the machine.",
    "server.terminal": "In a terminal: ",
  };
  const DIFFERS = {
    task: "what it writes",
    hardware: "the hardware",
    load: "requests at once",
    temperature: "the temperature",
  };

  /* A source is an arXiv number, an address, or a page of this project's docs (named, not linked). */
  function source(text) {
    if (!/^https:\/\//.test(text)) return K.paper(/^\d{4}\.\d{4,5}$/.test(text) ? "arXiv " + text : text);
    return el("a", { href: text, target: "_blank", rel: "noopener noreferrer" }, new URL(text).hostname);
  }

  function card(one, place, env) {
    const tell = K.status(),
      f = one.figure;
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
            TEXTS["server.differs"] + one.differs.map((d) => DIFFERS[d] || K.say(d, 40)).join(", ") + ".",
          )
        : null,
      el("p", null, K.paper(one.note)),
      el("pre", { class: "pn-flags", tabindex: "0", "aria-label": "Command" }, K.say(one.flags, 1200)),
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

  const command = (asked) =>
    "specviz recommend " +
    Object.entries(asked)
      .map(([question, answer]) => `--${question} ${answer}`)
      .join(" ");

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
      turn = 0;

    async function begin() {
      const questions = await K.request(env.ctx, "questions", {}, { tell });
      if (!questions) {
        begun = false;
        return;
      }
      for (const [key, q] of Object.entries(questions))
        picks.set(key, K.select({ label: q.title, options: Object.entries(q.answers), on: answer }));
      controls.replaceChildren(...[...picks.values()].map((p) => p.root));
      answer();
    }
    async function answer() {
      const mine = ++turn,
        asked = Object.fromEntries([...picks].map(([key, p]) => [key, p.value])),
        found = await K.request(env.ctx, "recommend", asked, { tell });
      if (!found || mine !== turn) return;
      out.replaceChildren(
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
      destroy() {},
    };
  }

  (P.views = P.views || {}).server = view;
})();
