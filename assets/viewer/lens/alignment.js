/* Two tokenizations of one draft, one above the other on a line of bytes: where their borders fall together, where not. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { svg } = SV.dom;
  const { list, ints, num, int, word, say, frame, short, label: text } = SV.pictures;
  const CW = 7.25;

  /* A span is [start, end] in bytes of the draft; a token that is not the target's comes with its text: [text, start, end]. */
  function spans(x, tokens, c) {
    return list(x, 48)
      .map((s, i) => {
        const own = list(s),
          [said, from, to] = own.length > 2 ? [own[0], int(own[1]), int(own[2])] : ["", int(own[0]), int(own[1])];
        return from === null || to === null || to < from
          ? null
          : {
              from,
              to,
              text:
                tokens && tokens[i] !== undefined
                  ? c.label(tokens[i], 14)
                  : SV.text.label(SV.text.visible(word(said, 40)), 14),
            };
      })
      .filter(Boolean);
  }

  function draw(host, notes, c) {
    const d = notes[0] || {},
      tokens = ints(d.tokens, 48),
      theirs = spans(d.theirs, null, c),
      ours = spans(d.ours, tokens, c),
      shared = list(d.shared, 48);
    host.append(
      say(
        "The draft speaks another vocabulary: its " +
          theirs.length +
          " tokens became " +
          ours.length +
          " of the target's.",
        num(d.overlap) === null ? "" : " The two share " + short(100 * d.overlap) + " % of the target's tokens.",
      ),
    );
    const end = Math.max(0, ...theirs.map((s) => s.to), ...ours.map((s) => s.to)),
      w = Math.max(Math.min(c.width, 200), end * 11 + 60, 120),
      X = (b) => 56 + b * 11;
    if (!end || end > 4000) return;
    const S = frame(w, 96, "Tokens of the draft above, tokens of the target below"),
      low = new Set(ours.map((s) => s.to));
    S.append(text(0, 31, "draft", "lb"), text(0, 77, "target", "lb"));
    for (const s of theirs)
      S.append(
        svg("line", { class: "border" + (low.has(s.to) ? " both" : ""), x1: X(s.to), x2: X(s.to), y1: 42, y2: 58 }),
      );
    const row = (all, y, cls) =>
      all.forEach((s, i) => {
        const g = svg("g", { class: "lt " + cls(i) });
        g.append(
          svg("rect", { x: X(s.from) + 1, y, width: Math.max(3, X(s.to) - X(s.from) - 2), height: 24, rx: 3 }),
          text(
            (X(s.from) + X(s.to)) / 2,
            y + 16,
            s.text.slice(0, Math.max(1, Math.floor(((s.to - s.from) * 11 - 4) / CW))),
            "tk",
            "middle",
          ),
        );
        S.append(g);
      });
    row(theirs, 16, () => "c");
    row(ours, 62, (i) =>
      c.round.nodes[i] && c.round.nodes[i].tok === tokens[i] ? c.verdict(i) : shared[i] === false ? "q" : "",
    );
    host.append(SV.dom.el("div", { class: "lscroll" }, S), say("A line between them: both end at the same byte."));
  }

  SV.lens.alignment = { title: "Two vocabularies, one text", draw };
})();
