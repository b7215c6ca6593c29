/* The probabilities card: why was this token kept or dropped? The draw u on a ruler against the acceptance probability a, the
   equation with its numbers, target and draft distributions side by side, and the residual the correction came from. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, f3 } = SV.dom;
  const { finite, rows, zOf, dist } = SV.distributions;

  function head(v, tok, where, verdict, word) {
    return el(
      "div",
      { class: "dtop" },
      el("bdi", { class: "w" }, SV.fold.label(v.lane, tok, 28)),
      el("span", { class: "quiet" }, where),
      el("span", { class: "verdict " + verdict }, word),
    );
  }
  function place(v, n) {
    const sib = v.round.nodes.filter((m) => m.parent === n.parent);
    return v.round.kind === "tree"
      ? "depth " + n.depth + (sib.length > 1 ? ", sibling " + (sib.indexOf(n) + 1) + " of " + sib.length : "")
      : "position " + n.depth;
  }

  function draw(v) {
    const r = v.round,
      card = el("div", { class: "card probs" });
    if (!r) return card;
    let id = v.sel;
    const pending = v.phase < 3 && r.nodes.length > 0;
    if (pending && id === "tail") id = 0;
    if (id === "tail" && r.why === "correction") {
      const rej = r.tests.filter((t) => r.judges.get(t).verdict === "rejected");
      if (rej.length && v.tailTo) id = rej[rej.length - 1];
    }
    const n = typeof id === "number" ? r.nodes[id] : null;
    if (!n) return tailCard(card, v);
    const j = r.judges.get(n.id);
    if (pending) return pendingCard(card, v, n);
    if (!j || j.verdict === "skipped") return skippedCard(card, v, n);
    return judgedCard(card, v, n, j);
  }

  function tailCard(card, v) {
    const r = v.round,
      c = r.commit;
    if (!c) {
      card.append(el("p", { class: "prose1" }, "The target has not answered yet."));
      return card;
    }
    const [cls, word, why] = {
      bonus: [
        "bon",
        "\u2605 Bonus token",
        "Every drafted token on the path was accepted. The same target pass already holds the distribution of the " +
          "next position, so one more token comes free.",
      ],
      correction: [
        "cor",
        "Correction",
        "The target rejected the draft here and put its own token instead, drawn from what is left of its distribution " +
          "after the refusal.",
      ],
      accepted: ["acc", "Accepted", "The round ended with a drafted token, so nothing was added."],
      unchecked: ["pla", "Unchecked", "This token was committed without a test by the target."],
      forced: ["pla", "Forced", "The rules left only one token here."],
      small: ["pla", "Small model", "The small model wrote this token alone."],
    }[r.why] || [
      "pla",
      "Plain step",
      "Nothing was drafted, so there is nothing to test: the token is drawn straight from the target's distribution.",
    ];
    card.append(
      head(v, c.tail.tok, r.why === "plain" ? "one target pass, one token" : "", cls === "pla" ? "ski" : cls, word),
      el("p", { class: "prose1" }, why),
    );
    if (finite(c.tail.p))
      card.append(el("p", { class: "eq", css: { "min-height": "20px" } }, "p = ", el("b", null, f3(c.tail.p))));
    const own = softmax(v, c.tail, c.tail.tok);
    if (own) card.append(...own);
    else if (Array.isArray(c.tail.top)) card.append(dist(v, rows(c.tail.top, null, null, c.tail.tok), c.tail.tok, {}));
    return card;
  }
  /* At temperature 0 p is one-hot and shows nothing: the model's own probabilities stand there instead, named as such. */
  function softmax(v, from, tok, n = null) {
    if (SV.why.temperature(v.lane) > 0 || !Array.isArray(from.top_softmax) || !from.top_softmax.length) return null;
    const list = rows(from.top_softmax, n && n.top_softmax, null, tok, [from.softmax_p, n && n.softmax_q]);
    return [
      dist(v, list, tok, { softmax: true }),
      el("p", { class: "note", "data-message": "softmax.note" }, SV.messages.say("softmax.note")),
    ];
  }
  /* The draft's own probability of its token at temperature 0, where q is one-hot; [] where it was not recorded. */
  const draftSoftmax = (v, n) =>
    SV.why
      .draftSoftmax(v.lane, n)
      .map(([id, values]) => el("p", { class: "note", "data-message": id }, SV.messages.say(id, values)));
  function pendingCard(card, v, n) {
    const ruler = el(
      "div",
      { class: "ruler" },
      el("div", { class: "bar bn" }, "no draw yet"),
      [0, 25, 50, 75, 100].map((x) => el("span", { class: "tick", css: { left: x + "%" } })),
    );
    card.append(
      head(v, n.tok, place(v, n), "dra", v.phase < 2 ? "Drafted" : "Being verified"),
      ruler,
      el(
        "p",
        { class: "eq" },
        finite(n.q) ? "q = " + f3(n.q) : "chosen, not drawn: no q",
        el("br"),
        "p is known after one target pass over " + SV.dom.count(v.round.nodes.length, "token"),
      ),
      ...draftSoftmax(v, n),
    );
    if (Array.isArray(n.top)) card.append(dist(v, rows(null, n.top, null, n.tok), n.tok, {}));
    return card;
  }
  function skippedCard(card, v, n) {
    card.append(
      head(v, n.tok, place(v, n), "ski", n.probe ? "Probe" : "Never examined"),
      el(
        "p",
        { class: "prose1" },
        (finite(n.q) ? "The draft gave it q = " + f3(n.q) + ". " : "") +
          (n.probe
            ? "It was scored for later and could not be accepted."
            : "An earlier test had already decided this place, so no draw was made. It counts as drafted, not as rejected."),
      ),
      ...draftSoftmax(v, n),
    );
    if (Array.isArray(n.top)) card.append(dist(v, rows(null, n.top, null, n.tok), n.tok, {}));
    return card;
  }
  function judgedCard(card, v, n, j) {
    const yes = j.verdict === "accepted",
      b = (x) => el("b", null, x);
    card.append(head(v, n.tok, place(v, n), yes ? "acc" : "rej", yes ? "Accepted" : "Rejected"));
    const eq = el("p", { class: "eq" });
    if (finite(j.a) && finite(j.u) && !certain(v, j)) {
      card.append(ruler(v, j));
      eq.append(
        ...equation(j, b),
        el("br"),
        "u = ",
        b(f3(j.u)),
        yes ? " < a, so the target keeps it" : " \u2265 a, so the target drops it",
      );
    } else if (j.rule === "" && !finite(j.a))
      eq.append(`How it was tested is not recorded: p = ${f3(j.p)}${finite(j.q) ? ", q = " + f3(j.q) : ""}.`);
    else eq.append(...greedy(v, n, j, b));
    card.append(eq);
    const src = source(v, n);
    if (src) card.append(el("p", { class: "note", css: { "min-height": "16px" } }, src));
    card.append(...draftSoftmax(v, n));
    const own = softmax(v, j, n.tok, n);
    if (own) {
      card.append(...own);
      return card;
    }
    const list = rows(j.top_p, n.top, j.resid, n.tok, [j.p, n.q ?? j.q]);
    if (list.length)
      card.append(
        dist(v, list, n.tok, {
          rejected: !yes,
          z: zOf(j, n),
          last: !yes && v.round.why === "correction" && v.round.tests[v.round.tests.length - 1] === n.id,
        }),
      );
    return card;
  }
  /* At temperature 0 p and q are one-hot: the target's first choice decides, and no draw. */
  const certain = (v, j) => SV.why.temperature(v.lane) === 0 && (j.a === 0 || j.a === 1);
  /* A number of a fraction, which must give the quotient beside it. */
  const small = (x) => (x > 0 && x < 0.001 ? x.toExponential(1) : f3(x));
  function equation(j, b) {
    if (finite(j.p) && finite(j.q) && j.q > 0 && Math.abs(Math.min(1, j.p / j.q) - j.a) < 2e-3) {
      const frac = small(j.p) + " / " + small(j.q);
      return ["a = min(1, p/q) = " + (j.p >= j.q ? "min(1, " + frac + ") = " : frac + " = "), b(f3(j.a))];
    }
    if (finite(j.p) && Math.abs(j.p - j.a) < 1e-9) return ["a = p = ", b(f3(j.a))];
    return [
      "a = ",
      b(f3(j.a)),
      finite(j.p)
        ? "  (p = " + f3(j.p) + (finite(j.q) ? ", q = " + f3(j.q) : "") + ", rule " + String(j.rule).slice(0, 32) + ")"
        : "  (rule " + String(j.rule).slice(0, 32) + ")",
    ];
  }
  function greedy(v, n, j, b) {
    const top = Array.isArray(j.top_p) && j.top_p[0],
      value = (p) => (finite(p) && !certain(v, j) ? " (p = " + f3(p) + ")" : "");
    if (j.verdict === "accepted")
      return ["The target's own choice is ", b(SV.fold.label(v.lane, n.tok)), value(j.p), ", so it keeps it."];
    return [
      "The target's own choice is ",
      b(top ? SV.fold.label(v.lane, top[0]) : "another token"),
      value(top && top[1]),
      ", so it drops ",
      b(SV.fold.label(v.lane, n.tok)),
      value(j.p) + ".",
    ];
  }
  function source(v, n) {
    const s = n.src;
    if (!s || typeof s !== "object") return "";
    return (
      "Copied from " +
      (typeof s.source === "string" ? s.source.slice(0, 40) : "earlier text") +
      (finite(s.start)
        ? ", token " + s.start + (finite(s.end) && s.end > s.start + 1 ? " to " + (s.end - 1) : "")
        : "") +
      "."
    );
  }

  function ruler(v, j) {
    const a = Math.min(1, Math.max(0, j.a)) * 100,
      u = Math.min(1, Math.max(0, j.u)) * 100,
      near = v.narrow ? 17 : 9;
    const side = (x, lo, hi) => (x < lo ? " l" : x > hi ? " r" : "");
    const out = el(
      "div",
      {
        class: "ruler",
        role: "img",
        "aria-label": "Accepted if the draw is below " + f3(j.a) + "; the draw is " + f3(j.u),
      },
      el(
        "div",
        { class: "bar ba" + (a > 14 ? "" : " thin"), css: { width: a + "%" } },
        a > (v.narrow ? 24 : 14) ? "accept" : "",
      ),
      a < 99.9
        ? el(
            "div",
            { class: "bar br" + (u > 84 ? " left" : "") + (a > 94 ? " thin" : ""), css: { width: 100 - a + "%" } },
            a < (v.narrow ? 76 : 86) ? el("span", null, "reject") : "",
          )
        : "",
    );
    for (const x of [0, 25, 50, 75, 100]) {
      out.append(el("span", { class: "tick", css: { left: x + "%" } }));
      if (Math.abs(x - a) > near)
        out.append(
          el(
            "span",
            { class: "lab" + side(x, 1, 99), css: { left: x + "%" } },
            x === 0 ? "0" : x === 100 ? "1" : "." + String(x).replace(/0$/, ""),
          ),
        );
    }
    out.append(
      el("span", { class: "tick a", css: { left: a + "%" } }),
      el("span", { class: "lab a" + side(a, 6, 94), css: { left: a + "%" } }, "a = " + f3(j.a)),
      el("span", { class: "needle", css: { left: u + "%" } }),
      el("span", { class: "lab u" + side(u, 8, 92), css: { left: u + "%" } }, "u = " + f3(j.u)),
    );
    return out;
  }

  SV.card = { draw };
})();
