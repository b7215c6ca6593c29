/* Two distributions side by side, and the residual a correction is drawn from: the top tokens of each, as numbers and as bars. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, f3 } = SV.dom;
  const ROWS = 5;
  const finite = (x) => typeof x === "number" && Number.isFinite(x);

  /* Rows of both distributions: the top tokens of either, the tested token always among them, and the rest as one row. */
  function rows(p, q, resid, me, known = []) {
    const dists = [p, q, resid].map((l) =>
      Array.isArray(l) ? new Map(l.filter((x) => Array.isArray(x) && finite(x[1]))) : null,
    );
    known.forEach((x, k) => {
      if (dists[k] && finite(x) && !dists[k].has(me)) dists[k].set(me, x);
    }); /* too unlikely for the saved list */
    /* Only the best of a distribution is saved: what is not among them is unknown, unless they already add up to one. */
    const whole = dists.map((m) => m && [...m.values()].reduce((s, x) => s + x, 0) > 0.999);
    const all = new Set(dists.flatMap((m) => (m ? [...m.keys()] : [])));
    const weight = (t) => Math.max(...dists.map((m) => (m && m.get(t)) || 0));
    const pick = [...all].sort((x, y) => weight(y) - weight(x)).slice(0, ROWS);
    if (all.has(me) && !pick.includes(me)) pick[pick.length - 1] = me;
    pick.sort((x, y) => Number(y === me) - Number(x === me) || weight(y) - weight(x));
    const out = pick.map((t) => ({
      tok: t,
      v: dists.map((m, k) => (m ? (m.get(t) ?? (whole[k] ? 0 : undefined)) : null)),
    }));
    for (const { v } of out) if (v[2] === undefined && finite(v[0]) && finite(v[1]) && v[0] <= v[1]) v[2] = 0;
    const rest = dists.map((m, k) => (m ? Math.max(0, 1 - out.reduce((s, r) => s + (r.v[k] || 0), 0)) : null));
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
  /* What is said under two distributions, as the identifier of a message, or "". p, q, residual: which of them are known. */
  function noteId({ rejected, last, softmax, p, q, residual }) {
    if (softmax) return "";
    if (!rejected) return p && q ? "dist.kept" : "";
    return residual ? (q ? "dist.residual" : "dist.residual.chosen") + (last ? ".drawn" : ".next") : "";
  }
  function dist(v, list, me, { rejected, z, last, softmax }) {
    const max = Math.max(1e-9, ...list.map((r) => Math.max(r.v[0] || 0, r.v[1] || 0))),
      has = [0, 1, 2].map((k) => list.some((r) => r.v[k] !== null));
    /* At temperature 0 p and q are one-hot, and what is drawn is neither of them. */
    const names = softmax ? ["softmax target", "softmax draft", "target", "draft"] : ["p target", "q draft", "p", "q"];
    const sw = (c) => el("i", { class: "sw " + c }),
      g = el("div", { class: "dist" }),
      num = (x) => (x === null ? "" : f3(x)),
      none = (x) => x === null || x === undefined;
    g.append(
      el("span", { class: "hd" }),
      el("span", { class: "hd" }, has[0] ? [sw("fp"), names[0]] : "", has[1] ? [sw("fq"), names[1]] : ""),
      el("span", { class: "hd num" }, has[0] ? names[2] : ""),
      el("span", { class: "hd num" }, has[1] ? names[3] : ""),
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
    const id = noteId({ rejected, last, softmax, p: has[0], q: has[1], residual: has[2] }),
      note = SV.messages.say(id, {
        z: z ? SV.messages.say("dist.z", { z: f3(z) }) : SV.messages.say("dist.scaled"),
        token: last ? SV.fold.label(v.lane, v.round.commit.tail.tok) : "",
      });
    return el("div", null, g, note ? el("p", { class: "note", css: { "margin-top": "10px" } }, note) : "");
  }

  SV.distributions = { finite, rows, zOf, dist, noteId };
})();
