/* Lab: the same row alone and in a batch. A row's logits from a pass of its own, from a pass with other requests, and from a pass
   with the other rows of a draft, in three number formats. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el } = SpecViz.dom;
  const K = P.kit;
  const STEPS = [
    ["24", "192 positions"],
    ["96", "768 positions"],
  ];
  const whole = (x) => (Number.isInteger(x) && x >= 0 ? x : 0);

  function batched(env) {
    const tell = K.status(),
      out = el("div"),
      steps = K.select({ label: "How many", options: STEPS, value: "24" }),
      press = K.button("Compare", go);
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Alone and in a batch",
        K.lead(
          "Floating-point sums depend on their order, and the order on the shape of the pass. So a row may get other logits " +
            "beside other requests, or inside a draft, than alone. Where two tokens are nearly equal, the text flips.",
        ),
      ),
      el("div", { class: "pn-row" }, steps.root, press),
      tell.root,
      el("div", { class: "pn-box" }, out),
    );
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        "Eight texts, read position by position: each alone, eight requests in one pass, and eight rows of one text in one pass.",
      ),
    );
    async function go() {
      const paint = (got) => out.replaceChildren(...show(got));
      const got = await K.request(
        env.ctx,
        "batch_effects",
        { steps: Number(steps.value) },
        { press, tell, busy: "Writing the texts\u2026", part: paint },
      );
      if (got) paint(got);
    }
    const share = (part, of) => `${whole(part)} of ${whole(of)}`;
    function show(got) {
      const rows = (Array.isArray(got.rows) ? got.rows : []).filter((one) => one && one.batch && one.draft).slice(0, 4);
      const cells = (row, way) => [
        share(way.changed, row.positions),
        share(way.flips, row.positions),
        K.finite(way.largest) ? Number(way.largest.toPrecision(2)).toString() : "\u2013",
      ];
      const flipped = rows.flatMap((row) =>
        ["batch", "draft"].map((way) => [row.numbers, way, row[way].example]).filter((one) => one[2]),
      );
      return [
        K.table(
          [
            "Numbers",
            "Beside",
            { name: "Other bits", num: true },
            { name: "Other top token", num: true },
            { name: "Largest difference of a logit", num: true },
          ],
          rows.flatMap((row) => [
            [K.say(row.numbers, 20), "seven other requests", ...cells(row, row.batch)],
            [K.say(row.numbers, 20), "seven rows of a draft", ...cells(row, row.draft)],
          ]),
          "Positions whose logits differ from those of a pass with one row",
        ),
        ...flipped.map(([numbers, way, example]) =>
          el(
            "p",
            { class: "pn-small" },
            `${K.say(numbers, 20)}, ${way === "batch" ? "beside other requests" : "inside a draft"}: alone `,
            el("q", null, K.say(String((example.tokens || [])[0]), 40)),
            ` (p = ${SpecViz.dom.f3((example.alone || [])[0])}), in a batch `,
            el("q", null, K.say(String((example.tokens || [])[1]), 40)),
            ` (p = ${SpecViz.dom.f3((example.batched || [])[1])}).`,
          ),
        ),
        el(
          "p",
          { class: "pn-help" },
          "The eight-bit pass sums whole numbers and everything else in a fixed order. " +
            K.say(got.machine || "", 200) +
            ".",
        ),
      ];
    }
    return { root, update() {}, destroy() {} };
  }

  (P.views = P.views || {}).batched = batched;
})();
