/* The short answer: why the selected token was kept, refused or written, in one sentence. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { el } = SV.dom;

  const temperature = (lane) => (lane.header && lane.header.sampling && lane.header.sampling.temperature) || 0;
  const TAGS = {
    acc: "\u2713 Kept",
    rej: "\u2715 Refused",
    ski: "Not looked at",
    dra: "A guess",
    cor: "\u25be Corrected",
    bon: "\u2605 Free",
    pla: "Written",
  };

  /* The sentence for a drafted node, or for the target's own token. tail: the last token of the round. */
  function reason(v, cls, node, tail) {
    const r = v.round,
      hot = temperature(v.lane) > 0,
      last = r.commit && r.why === "correction" ? (r.path[r.path.length - 1] ?? -1) : null;
    if (node === "tail")
      return (
        {
          bonus: "Every guess on the way was right, so the same pass gives one more token at no cost.",
          correction: hot
            ? "The large model refused the guess here and drew a token of its own, from what it wants more than the guess did."
            : "The large model\u2019s own token. It stands where the first wrong guess stood, so the text stays " +
              "the same as in plain decoding.",
          small: "The small model wrote this token alone; the large one was not asked.",
          unchecked: "This token was written without a test by the large model.",
        }[r.why] || "Nothing was guessed here: one pass of the large model, one token."
      );
    if (cls === "acc")
      return hot
        ? "The large model finds this token likely enough, and the random draw accepted it: it is kept without a pass of its own."
        : "The large model would have written the same token here, so it is kept without a pass of its own.";
    if (cls === "rej") {
      if (hot)
        return (
          "The large model wants this token less than the small one does, and the random draw refused it. " +
          "What was guessed after it is thrown away."
        );
      if (last !== null && node.parent === last)
        return [
          "The large model would write ",
          el("bdi", { class: "mono" }, SV.fold.label(v.lane, tail, 24)),
          " here, so the guess is refused and everything after it is thrown away.",
        ];
      return "The large model would write another token here, so the guess is refused.";
    }
    if (cls === "dra") return "A guess: the large model has not looked at it yet.";
    return r.kind === "tree"
      ? "The text went another way before this guess, so it was never looked at."
      : "A guess before it was refused, so this one was never looked at.";
  }

  function draw(v) {
    const r = v.round,
      box = el("div", { class: "short" });
    /* where the run ended on a guess, the last token is that guess */
    const ended = r.commit && r.why === "accepted" && r.path.length ? r.path[r.path.length - 1] : "tail",
      sel = v.sel === "tail" ? ended : v.sel,
      id = v.phase < 3 && v.sel === "tail" && r.nodes.length ? 0 : sel,
      n = typeof id === "number" ? r.nodes[id] : null;
    if (!n && !r.commit) return box;
    if (SV.serverFacts.is(v.lane)) {
      box.append(el("p", null, "The server sent this text. The server does not report which guesses were behind it."));
      box.append(...SV.serverTable.table(v.lane).filter(Boolean));
      return box;
    }
    const cls = n ? SV.fold.verdictOf(r, n.id, v.phase) : { bonus: "bon", correction: "cor" }[r.why] || "pla",
      tail = r.commit ? r.commit.tail.tok : null;
    box.append(
      el("span", { class: "verdict " + (cls === "pla" ? "ski" : cls) }, TAGS[cls]),
      el("bdi", { class: "w" }, SV.fold.label(v.lane, n ? n.tok : tail, 28)),
      el("p", null, reason(v, cls, n || "tail", tail)),
    );
    return box;
  }

  /* At temperature 0 the draw decides nothing; where the page can run, offer a sampled run. */
  function greedyNote(v) {
    if (temperature(v.lane) > 0 || !v.round.judges.size) return null;
    const h = v.lane.header,
      page = globalThis.SpecVizPage;
    const go = () =>
      page.run({
        prompt: h.prompt.text,
        methods: [h.method.key],
        knobs: { [h.method.key]: h.knobs || {} },
        temperature: 1,
        tab: "watch",
      });
    return el(
      "p",
      { class: "cold" },
      "Temperature 0: every acceptance probability is 0 or 1, so the random draw decides nothing here.",
      page && page.run && h.prompt && h.prompt.text
        ? el("button", { type: "button", on: { click: go } }, "Run it at temperature 1")
        : null,
    );
  }

  SV.why = { draw, greedyNote, temperature };
})();
