/* Parallel drafting and verifying: when each of the two models worked in this round, and what was kept of what was
   written ahead. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { svg, span, count } = SV.dom;
  const { num, int, word, say, frame, label: text } = SV.pictures;
  const pair = (x) =>
    Array.isArray(x) && num(x[0]) !== null && num(x[1]) !== null && x[1] >= x[0] ? [x[0], x[1]] : null;

  function draw(host, notes, c) {
    const past = c
        .history()
        .filter(({ data }) => pair(data && data.draft) || pair(data && data.verify))
        .slice(-6),
      d = notes[0] || {};
    host.append(
      say(
        d.mode === "post-verify"
          ? "Post-verify: while the target read " +
              count(int(d.waiting, 0), "waiting token") +
              ", the draft wrote " +
              int(d.written, 0) +
              " more, as if all of them were to be kept."
          : "Pre-verify: nothing waited, so the target judged a first token while the rest of its chunk was being written.",
        " Kept for the next round: " + int(d.kept, 0) + ".",
      ),
    );
    if (!past.length) return;
    const t = past.flatMap(({ data }) => [pair(data.draft), pair(data.verify)]).filter(Boolean),
      t0 = Math.min(...t.map((p) => p[0])),
      t1 = Math.max(t0 + 1e-9, ...t.map((p) => p[1]));
    const L = 52,
      w = c.width,
      X = (x) => L + ((x - t0) / (t1 - t0)) * (w - L - 12),
      S = frame(w, 108, "When the draft and the target worked");
    S.append(text(0, 28, "draft", "lb"), text(0, 62, "target", "lb"));
    for (const { round, data } of past) {
      const now = round === c.round.i,
        bar = (p, y, cls) => {
          if (p)
            S.append(
              svg("rect", {
                class: cls + (now ? " on" : ""),
                x: X(p[0]),
                y,
                width: Math.max(1.5, X(p[1]) - X(p[0])),
                height: 22,
                rx: 2,
              }),
            );
        };
      bar(pair(data.draft), 13, "td");
      bar(pair(data.verify), 47, "tv");
      const p = pair(data.verify) || pair(data.draft);
      S.append(text((X(p[0]) + X(p[1])) / 2, 84, String(round + 1), "ax", "middle"));
      const kept = c.lane.rounds[round].why === "correction";
      if (kept) S.append(svg("line", { class: "cut", x1: X(p[1]), x2: X(p[1]), y1: 8, y2: 72 }));
    }
    S.append(text(L, 103, "0", "ax"), text(w - 12, 103, span(t1 - t0), "ax", "end"));
    host.append(
      S,
      say(
        "Bars over each other ran at the same time" +
          (word(d.clock) === "simulated"
            ? "; on this machine they ran one after the other, and this picture is computed from their times"
            : "") +
          ". A dashed line: a refusal, and what was written ahead is thrown away.",
      ),
    );
  }

  SV.lens.timeline = { title: "Two models at work", draw };
})();
