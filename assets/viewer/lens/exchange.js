/* What a lossy rule gains and what it costs: the line v = w p + (1 - w) q of a mixture (DIVERSED, 2604.07622), which no rule
   lies above, and where this run's rule lies. Both axes are means over the tested positions. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { svg, count } = SV.dom;
  const { nums, say, frame, label, short } = SV.pictures;
  const MOST = 64 /* positions of a round */,
    HEIGHT = 168,
    LEFT = 44,
    RIGHT = 120 /* for the words at the line's end */,
    BOTTOM = 36,
    ON_LINE = 0.005; /* nearer than this is not seen */
  const mean = (xs) => xs.reduce((a, b) => a + b, 0) / Math.max(1, xs.length);

  /* Means over the positions of these notes: {accepted, strays, apart, n}. */
  function means(notes) {
    const of = (name) => notes.flatMap((note) => nums(note && note[name], MOST)),
      [accepted, strays, apart] = ["accepted", "strays", "apart"].map(of);
    return { accepted: mean(accepted), strays: mean(strays), apart: mean(apart), n: accepted.length };
  }

  function draw(host, notes, c) {
    const past = c.history().map(({ data }) => data),
      m = means(past.length ? past : notes);
    if (!m.n) return;
    const best = 1 - m.apart + m.strays,
      on = best - m.accepted < ON_LINE;
    host.append(
      say(
        SV.messages.say(on ? "exchange.on" : "exchange.below", {
          places: count(m.n, "place"),
          accepted: short(m.accepted),
          exact: short(1 - m.apart),
          strays: short(m.strays),
          best: short(best),
        }),
      ),
    );
    const w = Math.min(c.width, 520),
      low = Math.floor(10 * Math.max(0, 1 - 1.5 * m.apart)) / 10,
      X = (x) => LEFT + (m.apart > 0 ? x / m.apart : 0) * (w - LEFT - RIGHT),
      Y = (y) => 12 + ((1 - y) / Math.max(1e-9, 1 - low)) * (HEIGHT - BOTTOM - 12),
      S = frame(w, HEIGHT, SV.messages.say("exchange.name")),
      floor = HEIGHT - BOTTOM;
    S.append(
      svg("line", { class: "axis", x1: LEFT, x2: w - RIGHT, y1: floor + 0.5, y2: floor + 0.5 }),
      label(LEFT - 6, Y(1) + 4, "1", "ax", "end"),
      label(LEFT - 6, floor + 4, short(low), "ax", "end"),
      label(LEFT, floor + 14, "0", "ax"),
      label(X(m.apart), floor + 14, short(m.apart), "ax", "end"),
      label(LEFT, floor + 30, SV.messages.say("exchange.axis"), "ax"),
      svg("line", { class: "ln thin", x1: X(0), y1: Y(1 - m.apart), x2: X(m.apart), y2: Y(1) }),
      svg("circle", { class: "pt", cx: X(0), cy: Y(1 - m.apart), r: 2.5 }),
      label(X(0) + 8, Y(1 - m.apart) + 14, SV.messages.say("exchange.exact"), "ax"),
      svg("circle", { class: "pt", cx: X(m.apart), cy: Y(1), r: 2.5 }),
      label(X(m.apart) + 8, Y(1) + 4, SV.messages.say("exchange.all"), "ax"),
      svg("circle", { class: "end", cx: X(m.strays), cy: Y(m.accepted), r: 4 }),
      label(X(m.strays) + 8, Y(m.accepted) + 14, SV.messages.say("exchange.here"), "lb"),
    );
    host.append(S);
  }

  SV.lens.exchange = { title: "Speed for fidelity", draw };
  SV.exchange = { means };
})();
