/* The short answer: why the selected token was kept, refused or written, in one sentence. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, f3, pct } = SV.dom;
  const finite = (x) => typeof x === "number" && Number.isFinite(x);

  const temperature = (lane) => (lane.header && lane.header.sampling && lane.header.sampling.temperature) || 0;
  const TAGS = {
    acc: "\u2713 Accepted",
    rej: "\u2715 Rejected",
    ski: "Never examined",
    dra: "A guess",
    cor: "\u25be Correction",
    bon: "\u2605 Bonus",
    pla: "Written",
  };

  /* How a node's test weighed it: "copied" (chosen by the draft, kept with probability p), "drawn" (min(1, p/q)), "rule" (any
     other rule). */
  function weighing(node, j) {
    const near = (x, y) => Math.abs(x - y) < 2e-3;
    if (!j || !finite(j.a) || !finite(j.p)) return "rule";
    const q = j.q ?? (j.rule === "ratio" || j.rule === "sibling" ? node.q : null);
    if (finite(q) && q > 0) return near(j.a, Math.min(1, j.p / q)) ? "drawn" : "rule";
    return near(j.a, j.p) ? "copied" : "rule";
  }
  function keptBecause(lane, r, node) {
    const j = r.judges.get(node.id);
    if (!j) return "why.kept.untested";
    if (!(temperature(lane) > 0)) return finite(j.p) && j.p < 0.5 ? "why.kept.lossy" : "why.kept.greedy";
    const how = weighing(node, j);
    if (how === "drawn") return j.a >= 0.9995 ? "why.kept.certain" : "why.kept.sampled";
    return how === "copied" ? "why.kept.copied" : "why.kept.rule";
  }
  function refusedBecause(lane, r, node) {
    const j = r.judges.get(node.id),
      last = r.commit && r.why === "correction" ? (r.path[r.path.length - 1] ?? -1) : null;
    if (!(temperature(lane) > 0))
      return last !== null && node.parent === last ? "why.refused.greedy" : "why.refused.sibling";
    return { drawn: "why.refused.sampled", copied: "why.refused.copied", rule: "why.refused.rule" }[weighing(node, j)];
  }
  function unseenBecause(r, node) {
    if (node.probe) return "why.unseen.probe";
    if (r.why === "accepted" && !r.tests.some((id) => r.judges.get(id).verdict === "rejected")) return "why.unseen.cut";
    return r.kind === "tree" ? "why.unseen.tree" : "why.unseen.chain";
  }
  function tailBecause(lane, r) {
    if (r.why === "correction") return "why.tail.correction." + (temperature(lane) > 0 ? "sampled" : "greedy");
    if (SV.output.of(lane).grids) return r.why === "small" ? "why.tail.scale.small" : "why.tail.scale.large";
    if (["bonus", "small", "unchecked", "forced", "accepted"].includes(r.why)) return "why.tail." + r.why;
    return r.nodes.some((n) => !n.probe) ? "why.tail.drafted" : "why.tail.plain";
  }
  /* What kind of token it is, where that matters: the last one of the run (end token, limit, stop), or a special one. */
  function kindOf(lane, r, tok, cls, lastOfRound) {
    const special = lane.special.has(tok),
      last = lastOfRound && lane.done && r.i === lane.committed - 1,
      finish = last ? lane.done.finish : "";
    if (special && cls === "rej") return "why.token.end_refused";
    if (special && (cls === "ski" || cls === "dra")) return "why.token.end_unseen";
    if (finish === "stop" && special) return "why.token.end";
    if (finish === "length") return "why.token.limit";
    if (["stop_string", "stopped", "deadline", "context"].includes(finish)) return "why.token." + finish;
    return special ? "why.token.special" : "";
  }

  /* Why the selected token stands or was refused: {cls, tok, node, ids: message identifiers, values}. sel: a node id or
     "tail". */
  function explain(lane, r, sel, phase = 4) {
    const own = sel === "tail" && phase >= 3 ? SV.fold.tailNode(r) : null,
      id = own ?? (phase < 3 && sel === "tail" && r.nodes.length ? 0 : sel),
      node = typeof id === "number" ? r.nodes[id] : null;
    if (!node && !r.commit) return null;
    const tok = node ? node.tok : r.commit.tail.tok,
      cls = node
        ? SV.fold.verdictOf(r, node.id, phase)
        : { bonus: "bon", correction: "cor", accepted: "acc" }[r.why] || "pla";
    const id0 = !node
      ? tailBecause(lane, r)
      : cls === "acc"
        ? keptBecause(lane, r, node)
        : cls === "rej"
          ? refusedBecause(lane, r, node)
          : cls === "dra"
            ? "why.guess"
            : unseenBecause(r, node);
    const ends = r.commit && phase >= 4 && (!node || node.id === SV.fold.tailNode(r)),
      kind = kindOf(lane, r, tok, cls, ends);
    return {
      cls,
      tok,
      node: node ? node.id : "tail",
      ids: kind ? [id0, kind] : [id0],
      values: {
        other: r.commit ? SV.fold.label(lane, r.commit.tail.tok, 24) : "",
        limit: lane.header?.max_new_tokens ?? "",
      },
    };
  }

  /* The numbers behind the sentence, in one line: [[message, values], ...]. Sampling: p, q, the acceptance probability and the
     draw. Temperature 0: the model's own probabilities (softmax) of its choice and of the guess, and how near the refusal was. */
  const draftSoftmax = (lane, node) =>
    node && finite(node.softmax_q) && !(temperature(lane) > 0)
      ? [["numbers.softmax.draft", { q: f3(node.softmax_q) }]]
      : [];
  const given = (x) => (f3(x).startsWith("under") ? f3(x) : "= " + f3(x));
  function numbers(lane, r, id) {
    const node = typeof id === "number" ? r.nodes[id] : null,
      j = node ? r.judges.get(id) : null,
      at = j || (!node && r.commit ? r.commit.tail : null),
      out = [];
    if (!at) return out;
    if (temperature(lane) > 0) {
      if (finite(at.p)) out.push([!node && r.why === "small" ? "numbers.p.small" : "numbers.p", { p: given(at.p) }]);
      if (j && finite(j.q ?? node.q)) out.push(["numbers.q", { q: given(j.q ?? node.q) }]);
      if (j && finite(j.a)) out.push(["numbers.accept", { a: f3(j.a).replace("under ", "") }]);
      if (j && finite(j.u)) out.push(["numbers.draw", { u: given(j.u) }]);
      return out;
    }
    const top = (Array.isArray(at.top_softmax) ? at.top_softmax : []).slice(0, 2),
      own = finite(at.softmax_p) ? at.softmax_p : null,
      tok = node ? node.tok : r.commit.tail.tok;
    for (const [t, p] of top) out.push(["numbers.softmax", { token: SV.fold.label(lane, t, 18), p: pct(p) }]);
    if (own !== null && !top.some(([t]) => t === tok))
      out.push(["numbers.softmax", { token: SV.fold.label(lane, tok, 18), p: pct(own) }]);
    if (j && j.verdict === "rejected" && own > 0 && top.length)
      out.push(["numbers.near", { times: top[0][1] / own >= 100 ? "over 100" : (top[0][1] / own).toFixed(1) }]);
    if (out.length) out.unshift(["numbers.own", {}]);
    else if (j && Array.isArray(j.top_p) && j.top_p[0])
      out.push(["numbers.choice", { token: SV.fold.label(lane, j.top_p[0][0], 18) }]);
    out.push(...draftSoftmax(lane, node));
    if (j) out.push(["numbers.nodraw", {}]);
    return out;
  }

  function draw(v) {
    const box = el("div", { class: "short" }),
      found = explain(v.lane, v.round, v.sel, v.phase);
    if (!found) return box;
    if (SV.serverFacts.is(v.lane)) {
      box.append(el("p", null, "The server sent this text. It does not report which guesses were behind it."));
      box.append(...SV.serverTable.table(v.lane).filter(Boolean));
      return box;
    }
    const { cls, tok, ids } = found,
      values = { ...found.values, other: el("bdi", { class: "mono" }, found.values.other) };
    box.append(
      el("span", { class: "verdict " + (cls === "pla" ? "ski" : cls) }, TAGS[cls]),
      el("bdi", { class: "w" }, SV.fold.label(v.lane, tok, 28)),
      el(
        "p",
        { "data-message": ids.join(" ") },
        ids.flatMap((id, i) => [i ? " " : "", ...SV.messages.parts(id, values)]),
      ),
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

  SV.why = { TAGS, draw, explain, numbers, draftSoftmax, weighing, greedyNote, temperature };
})();
