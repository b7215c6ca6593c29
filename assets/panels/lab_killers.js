/* Lab: what users of engines report most: the text is right and acceptance is low. Mistakes in the wiring of a draft head, as
   switches on a run of the small target. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, count } = SpecViz.dom;
  const K = P.kit;
  const PARTS = [
    ["feature", "The state that the head reads", "after the final norm"],
    ["token_of", "The token beside it", "the one after the position"],
    ["draft_position", "Positions of drafted tokens", "they go on after the text"],
    ["chat", "Chat template", "the one of the training"],
  ];
  const NAMES = {
    shift_by_one: "the one at the position (shift by one)",
    before_the_norm: "before the last layer and the norm",
    wrong_layer: "of another layer",
    positions_off: "one further on",
    positions_restart: "counted from the draft",
    unit_length: "scaled to length 1",
    wrong_template: "another model\u2019s",
  };
  const FUNCTION = {
    shift_by_one: "token_of",
    before_the_norm: "feature",
    wrong_layer: "feature",
    positions_off: "draft_position",
    positions_restart: "draft_position",
    unit_length: "feature",
    wrong_template: "chat",
  };
  const whole = (x) => (Number.isInteger(x) && x >= 0 ? x : 0);
  const rounds = (run) => (Array.isArray(run.accepted) ? run.accepted : []).slice(0, 200).map(whole);

  function killers(env) {
    let shown = [];
    const tell = K.status(),
      out = el("div"),
      prompt = K.field({ label: "Prompt", value: "Tell me a short story." }),
      press = K.button("Run it", go);
    const chosen = PARTS.map(([part, label, right]) =>
      K.select({
        label,
        options: [["", right], ...Object.keys(FUNCTION).filter((key) => FUNCTION[key] === part)].map((one) =>
          Array.isArray(one) ? one : [one, NAMES[one]],
        ),
      }),
    );
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Right text, low acceptance",
        K.lead(
          "A draft head that is wired wrongly drafts badly, and verification hides it: the text stays the target\u2019s. " +
            "Only the " +
            "accepted length tells. Put a mistake in, and compare.",
        ),
      ),
      K.twoColumns(
        [prompt.root, chosen.map((one) => one.root), el("div", { class: "pn-row" }, press), tell.root],
        [el("div", { class: "pn-box" }, out)],
      ),
    );
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        "The engine runs the EAGLE head of the small target (16 million parameters) as it was trained, " +
          "then with what you chose, " +
          "at temperature 0.",
      ),
    );
    async function go() {
      const mistakes = chosen.map((one) => one.value).filter(Boolean);
      const paint = (got) => {
        out.replaceChildren(...show(got));
        plot.paint();
      };
      const got = await K.request(
        env.ctx,
        "acceptance_killers",
        { prompt: prompt.value, mistakes },
        { press, tell, busy: "Running\u2026", part: paint },
      );
      if (got) paint(got);
    }
    /* Tokens written over passes: the slope is the accepted length. */
    const plot = P.plot.frame("Tokens over passes", draw, () =>
      SpecViz.save.own("The small target with its EAGLE head, as trained and as chosen."),
    );
    function draw(width) {
      if (!shown.length) return [];
      const lines = shown.map((run, i) => {
        let total = 0;
        const pts = [[0, 0], ...rounds(run).map((x, at) => [at + 1, (total += x + 1)])];
        return { pts, name: i ? "your choice" : "as trained", cls: i ? "" : "dash" };
      });
      const last = lines.flatMap((line) => line.pts);
      return P.plot.xy({
        width,
        height: 200,
        x: { min: 0, max: Math.max(...last.map((p) => p[0])), name: "passes of the target", whole: true },
        y: { min: 0, max: Math.max(...last.map((p) => p[1])) * 1.1, show: (v) => String(Math.round(v)) },
        series: lines,
      });
    }
    function show(got) {
      const runs = (Array.isArray(got.runs) ? got.runs : [])
        .filter((one) => one && K.finite(one.tokens_per_pass))
        .slice(0, 2);
      shown = runs;
      if (!runs.length) return [];
      const title = (run) =>
        (Array.isArray(run.mistakes) ? run.mistakes : [])
          .map((key) => NAMES[key])
          .filter(Boolean)
          .join("; ") || "as trained";
      const [right, wrong] = runs,
        known = new Map((Array.isArray(got.mistakes) ? got.mistakes : []).map((one) => [one.key, one.sentence]));
      return [
        K.figures(
          runs.map((run, i) => ({
            label: i ? "With your choice" : "As trained",
            value: run.tokens_per_pass.toFixed(2),
            note: `tokens per pass; ${run.equal ? "text equals plain decoding" : "text differs from plain decoding"}`,
            strong: Boolean(i),
          })),
        ),
        K.table(
          [
            "Wiring",
            { name: "Passes", num: true },
            { name: "Accepted", num: true },
            { name: "Tokens a pass", num: true },
          ],
          runs.map((run) => [
            title(run),
            String(rounds(run).length),
            count(K.sum(rounds(run)), "token"),
            run.tokens_per_pass.toFixed(2),
          ]),
          "The same question with the head as trained, and as you wired it",
        ),
        ...(wrong
          ? (wrong.mistakes || []).map((key) =>
              el("p", { class: "pn-small" }, el("b", null, "Put in: "), K.say(known.get(key) || key, 300)),
            )
          : []),
        el(
          "p",
          { class: "pn-prose" },
          el("b", null, "Both write: "),
          K.say(right.text || "", 400),
          wrong && wrong.text !== right.text ? el("span", null, " / ", K.say(wrong.text || "", 400)) : null,
        ),
        wrong && wrong.text !== right.text
          ? el(
              "p",
              { class: "pn-help" },
              "The template is part of the prompt, so that the second text answers another prompt. " +
                "Each equals plain decoding of its own.",
            )
          : null,
        plot.root,
      ].filter(Boolean);
    }
    return { root, update() {}, destroy: () => plot.stop() };
  }

  (P.views = P.views || {}).killers = killers;
})();
