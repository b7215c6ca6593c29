/* Lab: the formula's promise against the clock, with the difference named. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, times } = SpecViz.dom;
  const K = P.kit,
    M = P.maths;

  const WHY = {
    acceptance: [
      "Acceptance comes in runs",
      "The formula lets every token succeed with the same chance, each by itself. Real text has easy " +
        "stretches and hard places, drafts of unequal length and, in a tree, second choices.",
    ],
    rows: [
      "A pass over several rows costs more",
      "The formula takes a pass to cost the same however many rows it reads.",
    ],
    overhead: [
      "Work outside the models",
      "Judging, cache upkeep, planning: per round here, per token in plain decoding. The formula has none of it.",
    ],
  };
  const signed = (x) => (x >= 0 ? "+" : "\u2212") + Math.abs(x).toFixed(2);

  /* The formula as people write it, with this trace's numbers under it. Text and a fraction line, no images. */
  function formula(g, doubt) {
    const v = (x) => el("var", null, x);
    return el(
      "div",
      {
        class: "pn-formula",
        role: "img",
        "aria-label":
          "speed-up = (1 minus alpha to the power of gamma plus 1) over ((1 minus alpha) times (c gamma plus 1))",
      },
      el("span", null, "speed-up ="),
      el(
        "span",
        { class: "frac" },
        el("span", null, "1 \u2212 ", v("\u03b1"), el("sup", null, "\u03b3+1")),
        el("span", null, "(1 \u2212 ", v("\u03b1"), ") (", v("c"), v("\u03b3"), " + 1)"),
      ),
      g
        ? [
            el("span", null, "="),
            el(
              "span",
              { class: "frac num" },
              el(
                "span",
                null,
                "1 \u2212 " + g.alpha.toFixed(2),
                el("sup", null, (g.gamma + 1).toFixed(g.gamma % 1 ? 1 : 0)),
              ),
              el(
                "span",
                null,
                `(1 \u2212 ${g.alpha.toFixed(2)}) (`,
                timed(g.c.toFixed(2), doubt),
                ` \u00b7 ${g.gamma.toFixed(g.gamma % 1 ? 1 : 0)} + 1)`,
              ),
            ),
            el("span", null, "= "),
            el("b", null, timed(times(g.formula), doubt)),
          ]
        : null,
    );
  }

  /* A figure that holds a time: a dash where no speed is named. */
  const timed = (text, doubt) => (doubt ? K.unnamed() : text);

  /* The steps from the promise to the clock, as bars that hang from one another; times that do not count have no bar. */
  function steps(g, doubt) {
    /** @type {{name: string, about?: string, from: number, to: number, show: string, end?: boolean}[]} */
    const list = [{ name: "The formula promises", from: 0, to: g.formula, show: times(g.formula), end: true }];
    let at = g.formula;
    for (const s of g.steps) {
      list.push({ name: WHY[s.key][0], about: WHY[s.key][1], from: at, to: at + s.by, show: signed(s.by) });
      at += s.by;
    }
    list.push({ name: "The clock says", from: 0, to: g.measured, show: times(g.measured), end: true });
    const top = Math.max(1, ...list.map((x) => Math.max(x.from, x.to))) * 1.04,
      pc = (x) => (100 * Math.max(0, x)) / top + "%";
    return el(
      "div",
      { class: "pn-fall", role: "list", "aria-label": "From the formula to the measurement" },
      list.map((x) =>
        el(
          "div",
          { role: "listitem", class: x.end ? "whole" : x.to < x.from ? "down" : "up" },
          el("span", { class: "n" }, el("b", null, x.name), x.about ? el("small", null, x.about) : null),
          el(
            "span",
            { class: "t", "aria-hidden": "true" },
            doubt ? null : el("i", { css: { left: pc(Math.min(x.from, x.to)), width: pc(Math.abs(x.to - x.from)) } }),
            el("u", { css: { left: pc(1) } }),
          ),
          el("span", { class: "v" }, timed(x.show, doubt)),
        ),
      ),
    );
  }

  function predict(env) {
    const root = el("div", { class: "pn-view" });
    let last = null;
    return {
      root,
      update() {
        const l = env.lane();
        if (l === last && root.firstChild) return;
        last = l;
        const title = K.head(
          "Predicted and measured",
          K.lead(
            "What the textbook formula promises for this run, what the clock said, and where the difference went.",
          ),
        );
        const g = l && M.gap(l);
        if (!g) {
          root.replaceChildren(
            title,
            env.empty(
              "",
              !l
                ? "Open or run a trace with a drafting method first."
                : !l.base
                  ? "This trace has no plain lane to measure against. Race the method against plain decoding."
                  : "This run is too short to compare.",
            ),
          );
          return;
        }
        const tree = M.shapeOf(l).width > 1;
        root.replaceChildren(
          title,
          env.laneLine(l),
          el(
            "div",
            { class: "pn-box" },
            formula(g, l.doubt),
            K.figures(
              [
                {
                  label: "\u03b1, acceptance",
                  value: g.alpha.toFixed(2),
                  note: tree ? "levels with a kept sibling / levels tried" : "accepted / tried",
                },
                {
                  label: "\u03b3, draft length",
                  value: g.gamma.toFixed(2),
                  note: "levels drafted, mean of the rounds",
                },
                { label: "c, price of a draft step", value: g.c.toFixed(2), note: "in plain passes", timed: true },
                { label: "A pass with the draft", value: times(g.v), note: "in plain passes", timed: true },
              ],
              l.doubt,
            ),
          ),
          el(
            "div",
            { class: "pn-box" },
            el("h3", null, "Where the difference went"),
            steps(g, l.doubt),
            K.small(
              K.paper(
                "The three differences add up exactly: the formula's chance of keeping is replaced by the " +
                  "measured tokens per pass, then its free pass by the measured pass, then both sides by the " +
                  "engine's whole clock. Formula: Leviathan et al. 2023, arXiv 2211.17192.",
              ),
            ),
          ),
        );
      },
      destroy() {},
    };
  }

  (P.views = P.views || {}).predict = predict;
  P.formula = formula;
})();
