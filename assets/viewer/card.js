/* The dice card: why was this token kept or dropped? The draw u on a ruler against the acceptance probability a, the
   equation with its numbers, target and draft laws side by side, and the residual the correction came from. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { el, f3 } = SV.dom;
  const ROWS = 5;
  const finite = (x) => typeof x === "number" && Number.isFinite(x);

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
      card = el("div", { class: "card dice" });
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
        "Every drafted token on the path was accepted. The same target pass already holds the law of the next position, so one more token comes free.",
      ],
      correction: [
        "cor",
        "Correction",
        "The target refused the draft here and put its own token instead, drawn from what is left of its law after the refusal.",
      ],
      accepted: ["acc", "Accepted", "The round ended with a drafted token, so nothing was added."],
      unchecked: ["pla", "Unchecked", "This token was committed without a test by the target."],
      forced: ["pla", "Forced", "The rules left only one token here."],
      small: ["pla", "Small model", "The small model wrote this token alone."],
    }[r.why] || [
      "pla",
      "Plain step",
      "Nothing was drafted, so there is nothing to test: the token is drawn straight from the target's law.",
    ];
    card.append(
      head(v, c.tail.tok, r.why === "plain" ? "one target pass, one token" : "", cls === "pla" ? "ski" : cls, word),
      el("p", { class: "prose1" }, why),
    );
    if (finite(c.tail.p))
      card.append(el("p", { class: "eq", css: { "min-height": "20px" } }, "p = ", el("b", null, f3(c.tail.p))));
    if (Array.isArray(c.tail.top)) card.append(dist(v, rows(c.tail.top, null, null, c.tail.tok), c.tail.tok, {}));
    return card;
  }
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
        "p is known after one target pass over " + v.round.nodes.length + " tokens",
      ),
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
    );
    if (Array.isArray(n.top)) card.append(dist(v, rows(null, n.top, null, n.tok), n.tok, {}));
    return card;
  }
  function judgedCard(card, v, n, j) {
    const yes = j.verdict === "accepted",
      b = (x) => el("b", null, x);
    card.append(head(v, n.tok, place(v, n), yes ? "acc" : "rej", yes ? "Accepted" : "Rejected"));
    const eq = el("p", { class: "eq" });
    if (finite(j.a) && finite(j.u)) {
      card.append(ruler(v, j));
      eq.append(
        ...equation(j, b),
        el("br"),
        "u = ",
        b(f3(j.u)),
        yes ? " < a, so the target keeps it" : " \u2265 a, so the target drops it",
      );
    } else eq.append(...greedy(v, n, j, b));
    card.append(eq);
    const src = source(v, n);
    if (src) card.append(el("p", { class: "note", css: { "min-height": "16px" } }, src));
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
  function equation(j, b) {
    if (finite(j.p) && finite(j.q) && j.q > 0 && Math.abs(Math.min(1, j.p / j.q) - j.a) < 2e-3) {
      const frac = f3(j.p) + " / " + f3(j.q);
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
    const top = Array.isArray(j.top_p) && j.top_p[0];
    if (j.verdict === "accepted")
      return [
        "The target's own choice is ",
        b(SV.fold.label(v.lane, n.tok)),
        finite(j.p) ? " (p = " + f3(j.p) + ")" : "",
        ", so it keeps it.",
      ];
    return [
      "The target's own choice is ",
      b(top ? SV.fold.label(v.lane, top[0]) : "another token"),
      top ? " (p = " + f3(top[1]) + ")" : "",
      ", so it drops ",
      b(SV.fold.label(v.lane, n.tok)),
      finite(j.p) ? " (p = " + f3(j.p) + ")." : ".",
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

  /* Rows of both laws: the likeliest of either, the tested token always among them, and the rest as one row. */
  function rows(p, q, resid, me, known = []) {
    const laws = [p, q, resid].map((l) =>
      Array.isArray(l) ? new Map(l.filter((x) => Array.isArray(x) && finite(x[1]))) : null,
    );
    known.forEach((x, k) => {
      if (laws[k] && finite(x) && !laws[k].has(me)) laws[k].set(me, x);
    }); /* too unlikely for the saved list */
    /* Only the best of a law is saved: what is not among them is unknown, unless they already add up to one. */
    const whole = laws.map((m) => m && [...m.values()].reduce((s, x) => s + x, 0) > 0.999);
    const all = new Set(laws.flatMap((m) => (m ? [...m.keys()] : [])));
    const weight = (t) => Math.max(...laws.map((m) => (m && m.get(t)) || 0));
    const pick = [...all].sort((x, y) => weight(y) - weight(x)).slice(0, ROWS);
    if (all.has(me) && !pick.includes(me)) pick[pick.length - 1] = me;
    pick.sort((x, y) => (y === me) - (x === me) || weight(y) - weight(x));
    const out = pick.map((t) => ({
      tok: t,
      v: laws.map((m, k) => (m ? (m.get(t) ?? (whole[k] ? 0 : undefined)) : null)),
    }));
    for (const { v } of out) if (v[2] === undefined && finite(v[0]) && finite(v[1]) && v[0] <= v[1]) v[2] = 0;
    const rest = laws.map((m, k) => (m ? Math.max(0, 1 - out.reduce((s, r) => s + (r.v[k] || 0), 0)) : null));
    if (out.length) out.push({ tok: null, v: rest });
    return out;
  }
  function zOf(j, n) {
    if (!Array.isArray(j.resid) || !j.resid.length || !finite(j.p) || !Array.isArray(j.top_p) || !Array.isArray(n.top))
      return null;
    /* From a token whose p, q and residual were all saved; what was not saved is not guessed. */
    const p = new Map(j.top_p),
      q = new Map(n.top),
      best = j.resid.find(([t, x]) => x > 0 && p.has(t) && q.has(t) && p.get(t) > q.get(t));
    const z = best ? (p.get(best[0]) - q.get(best[0])) / best[1] : null;
    return finite(z) && z > 0 && z <= 1 ? z : null;
  }
  function dist(v, list, me, { rejected, z, last }) {
    const max = Math.max(1e-9, ...list.map((r) => Math.max(r.v[0] || 0, r.v[1] || 0))),
      has = [0, 1, 2].map((k) => list.some((r) => r.v[k] !== null));
    const sw = (c) => el("i", { class: "sw " + c }),
      g = el("div", { class: "dist" }),
      num = (x) => (x === null ? "" : f3(x)),
      none = (x) => x === null || x === undefined;
    g.append(
      el("span", { class: "hd" }),
      el("span", { class: "hd" }, has[0] ? [sw("fp"), "p target"] : "", has[1] ? [sw("fq"), "q draft"] : ""),
      el("span", { class: "hd num" }, has[0] ? "p" : ""),
      el("span", { class: "hd num" }, has[1] ? "q" : ""),
      el("span", { class: "res" }),
      el("span", { class: "hd res" }, has[2] ? [sw("fr"), "residual"] : ""),
      el("span", { class: "hd res" }),
    );
    for (const {
      tok,
      v: [p, q, r],
    } of list) {
      g.append(
        tok === null
          ? el("span", { class: "w rest" }, "all others")
          : el("span", { class: "w" + (tok === me ? " me" : "") }, el("bdi", null, SV.fold.label(v.lane, tok, 14))),
        el(
          "span",
          { class: "bars" },
          none(p) ? "" : el("i", { class: "fp", css: { width: (p / max) * 100 + "%" } }),
          none(q) ? "" : el("i", { class: "fq", css: { width: (q / max) * 100 + "%" } }),
        ),
        el("span", { class: "num" }, num(p)),
        el("span", { class: "num" + (q ? "" : " off") }, num(q)),
        el("span", { class: "res" }),
        el("span", { class: "bars res" }, r ? el("i", { class: "fr", css: { width: r * 100 + "%" } }) : ""),
        el("span", { class: "num res" + (r ? "" : " off") }, num(r)),
      );
    }
    const what = !has[1]
      ? "Residual: p without the refused token, scaled to 1. "
      : "Residual: max(0, p \u2212 q)" + (z ? " / Z with Z = " + f3(z) : ", scaled to 1") + ". ";
    const note =
      rejected && has[2]
        ? what +
          (last
            ? "The correction \u201c" + SV.fold.label(v.lane, v.round.commit.tail.tok) + "\u201d was drawn from it."
            : "The next test uses it in place of p.")
        : rejected
          ? ""
          : has[0] && has[1]
            ? "Accepted, so no residual is drawn."
            : "";
    return el("div", null, g, note ? el("p", { class: "note", css: { "margin-top": "10px" } }, note) : "");
  }

  SV.card = { draw, rows };
})();
