/* Learn: a quiz. A drafted token of a recorded round with its verdict hidden: will the target keep it? What is shown is what
   could be known before the check; the answer shows what the check found, and leads to the round on the board. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, f3, setText } = SpecViz.dom;
  const K = P.kit,
    T = SpecViz.text,
    F = SpecViz.fold,
    messages = SpecViz.messages;

  /* Every examined token of the drafting lanes; half of the questions are refusals where there are enough. */
  function questions(lanes) {
    const yes = [],
      no = [];
    for (const l of lanes)
      if (!l.baseline)
        for (const r of l.rounds)
          for (const j of r.raw.trials) (j.verdict === "accepted" ? yes : no).push({ l, r, j, node: r.all[j.node] });
    return { yes, no };
  }
  /* The text before a node: what was committed before its round, and its ancestors. */
  function before(q, most = 22) {
    const { l, r, node } = q,
      words = l.folded.tokens.slice(Math.max(0, r.raw.first - most), r.raw.first).map((t) => t.parts),
      up = [];
    for (let x = node.parent; x >= 0; x = r.all[x].parent) up.unshift(x);
    return { words, up: up.map((id) => partsOf(l, r.all[id].tok)) };
  }
  const partsOf = (l, tok) =>
    l.folded.vocab.has(tok) ? T.alone(T.bytesOf(l.folded.vocab.get(tok))) : [F.label(l.folded, tok)];

  /* What may be said before the answer: a message's identifier. */
  function beforeId({ l, node, j }) {
    if (!(l.temperature > 0)) return node.src ? "quiz.before.greedy.copied" : "quiz.before.greedy";
    const how = SpecViz.why.weighing(node, j);
    if (how === "drawn") return j.a >= 0.9995 ? "quiz.before.certain" : "quiz.before.drawn";
    return how === "copied" ? (node.src ? "quiz.before.copied" : "quiz.before.chosen") : "quiz.before.rule";
  }
  /* Why it was kept or refused. */
  function afterId({ l, j, node, r }) {
    const kept = j.verdict === "accepted";
    if (l.temperature > 0)
      return j.a !== null && j.u !== null && SpecViz.why.weighing(node, j) !== "rule"
        ? "quiz.after.draw"
        : "quiz.after.rule";
    if (kept) return j.p !== null && j.p < 0.5 ? "quiz.after.lossy" : "quiz.after.kept";
    return r.why === "correction" && node.parent === (r.path[r.path.length - 1] ?? -1)
      ? "quiz.after.refused"
      : "quiz.after.rule";
  }
  const hint = (q) => {
    const id = beforeId(q),
      p = K.small(messages.say(id));
    p.dataset.message = id;
    return p;
  };

  function view(env) {
    const score = { right: 0, asked: 0, run: 0 },
      box = el("div", { class: "pn-box pn-quiz" }),
      status = el("p", { class: "pn-small", role: "status" });
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Will the target accept?",
        K.lead("A guess from the recording on the board, with its verdict hidden. Decide before the target does."),
      ),
      box,
      status,
    );
    let seed = 1,
      now = null,
      lanes = null,
      open = false,
      seen = new Set();

    function next() {
      const { yes, no } = questions(lanes),
        rnd = () => {
          seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
          return seed / 4294967296;
        };
      const fresh = (list) => list.filter((q) => !seen.has(q.l.id + "/" + q.r.i + "/" + q.j.node));
      const pools = [fresh(yes), fresh(no)];
      if (!pools[0].length && !pools[1].length) {
        seen = new Set();
        pools[0] = yes;
        pools[1] = no;
      }
      const pool = !pools[1].length || (pools[0].length && rnd() < 0.5) ? pools[0] : pools[1];
      if (!pool.length) {
        now = null;
        box.replaceChildren(env.empty("", "The quiz needs a recording with a draft that was checked."));
        return;
      }
      now = pool[Math.floor(rnd() * pool.length)];
      seen.add(now.l.id + "/" + now.r.i + "/" + now.j.node);
      open = false;
      ask();
    }
    function sentence(q, mark) {
      const b = before(q),
        p = el("p", { class: "pn-text", dir: "auto" }, "\u2026");
      for (const parts of b.words) p.append(...SpecViz.dom.parts(parts));
      for (const parts of b.up) p.append(el("span", { class: "t dra" }, SpecViz.dom.parts(parts)));
      p.append(el("span", { class: "guess " + (mark || "") }, SpecViz.dom.parts(partsOf(q.l, q.node.tok))));
      return p;
    }
    const saved = (label, caption, q) => ({
      max: 1,
      label,
      caption:
        caption +
        SpecViz.messages.say("quiz.caption", {
          guess: F.label(q.l.folded, q.node.tok, 18),
          round: String(q.r.i + 1),
          title: q.l.title,
        }),
      from: env.source,
    });
    /* Two bars, p and q, where the rule weighs them; at temperature 0 p would give the answer away. */
    function evidence(q) {
      const sampled = q.l.temperature > 0 && SpecViz.why.weighing(q.node, q.j) === "drawn",
        top = (q.node.top || []).slice(0, 4);
      if (sampled)
        return el(
          "div",
          null,
          P.plot.bars(
            [
              { name: "draft, q", value: q.j.q, show: f3(q.j.q) },
              { name: "target, p", value: q.j.p, show: f3(q.j.p), cls: "dark" },
            ],
            saved("Probability of the guess", messages.say(beforeId(q)), q),
          ),
          hint(q),
        );
      if (top.length > 1 && top[0][1] < 0.9995)
        return el(
          "div",
          null,
          P.plot.bars(
            top.map(([tok, q1]) => ({ name: el("bdi", null, F.label(q.l.folded, tok, 14)), value: q1, show: f3(q1) })),
            saved("The draft's own probabilities", "The most probable guesses at this place.", q),
          ),
          hint(q),
        );
      return hint(q);
    }
    function ask() {
      const keep = K.button("It stays", () => answer(true), "primary"),
        drop = K.button("It is rejected", () => answer(false));
      box.replaceChildren(sentence(now), evidence(now), el("div", { class: "pn-row pn-ask" }, keep, drop));
    }
    function answer(guess) {
      if (open || !now) return;
      open = true;
      const truth = now.j.verdict === "accepted",
        right = guess === truth,
        j = now.j;
      score.asked++;
      score.right += Number(right);
      score.run = right ? score.run + 1 : 0;
      const why = messages.say(afterId(now), {
        a: f3(j.a),
        u: f3(j.u),
        other: F.label(now.l.folded, now.r.tail.tok, 18),
      });
      const node = now,
        again = K.button("Next", next, "primary");
      box.replaceChildren(
        sentence(now, truth ? "acc" : "rej"),
        el(
          "div",
          { class: "pn-verdict", "data-good": String(truth), role: "status" },
          el(
            "b",
            null,
            el("span", { class: "sign", "aria-hidden": "true" }, truth ? "\u2713" : "\u2715"),
            SpecViz.messages.say(truth ? "quiz.kept" : "quiz.refused"),
          ),
          el("span", null, `${right ? "You were right." : "You said otherwise."} ${why}`),
        ),
        el(
          "div",
          { class: "pn-row pn-ask" },
          again,
          K.button(
            "Show it on the board",
            () => env.show({ lane: node.l.id, round: node.r.i, phase: 4, node: node.j.node, tab: "why" }),
            "quietly",
          ),
        ),
      );
      setText(
        status,
        `${score.right} of ${score.asked} right${score.run > 2 ? `, ${score.run} in a row` : ""}. Always ` +
          `saying \u201cit stays\u201d would be right ${Math.round(100 * share())} % of the time on this ` +
          "recording.",
      );
      again.focus({ preventScroll: true });
    }
    function share() {
      const { yes, no } = questions(lanes);
      return yes.length / Math.max(1, yes.length + no.length);
    }
    return {
      root,
      update() {
        const l = env.lanes();
        if (l !== lanes || !box.firstChild) {
          lanes = l;
          seen = new Set();
          next();
        }
      },
      destroy() {},
      state: () => ({ now, score, open }),
      answer,
    };
  }

  (P.views = P.views || {}).quiz = view;
  P.quiz = { questions, before, beforeId, afterId };
})();
