/* Learn: "Be the draft". Ten places of a recording, four candidates each: you guess, the target judges as it judged the draft.
   From
   the records alone: no server is asked. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, svg, setText, count, times, pct } = SpecViz.dom;
  const K = P.kit,
    F = SpecViz.fold,
    say = SpecViz.messages.say;
  const PLACES = 10,
    CANDIDATES = 4;

  /* The places of a lane that can be asked: a test of the draft whose right answer the records hold, with enough candidates.
     {q, right, draft: the draft's guess, candidates: [token], p: probability of each, of the target} */
  function places(lane) {
    const out = [];
    for (const r of lane.rounds)
      for (const j of r.raw.trials) {
        const node = r.all[j.node],
          end = r.path[r.path.length - 1] ?? -1,
          kept = j.verdict === "accepted";
        if (!kept && !(r.why === "correction" && node.parent === end)) continue;
        const right = kept ? node.tok : r.tail.tok,
          cold = !(lane.temperature > 0),
          target = (cold ? j.top_softmax : j.top_p) ?? [],
          guesses = node.top_softmax ?? node.top ?? [],
          p = new Map(target),
          list = [...new Set([right, node.tok, ...target.map((x) => x[0]), ...guesses.map((x) => x[0])])]
            .filter((tok) => tok >= 0 && lane.folded.vocab.has(tok) && (cold || p.has(tok)))
            .slice(0, CANDIDATES);
        if (list.length < CANDIDATES || !list.includes(right)) continue;
        out.push({ q: { l: lane, r, j, node }, right, draft: node.tok, draftKept: kept, candidates: list, p });
      }
    return out;
  }
  /* Ten of them, spread over the text, each with its candidates in an order that says nothing. seed: which game. */
  function choose(list, seed = 1) {
    const draw = SpecViz.speed.randomFractions(seed),
      n = Math.min(PLACES, list.length);
    return Array.from({ length: n }, (_, i) => {
      const from = Math.floor((i * list.length) / n),
        to = Math.floor(((i + 1) * list.length) / n),
        place = list[from + Math.floor(draw() * (to - from))],
        candidates = [...place.candidates];
      for (let k = candidates.length - 1; k > 0; k--) {
        const m = Math.floor(draw() * (k + 1));
        [candidates[k], candidates[m]] = [candidates[m], candidates[k]];
      }
      return { ...place, candidates, u: draw() };
    });
  }
  /* Whether the target keeps this guess: at temperature 0 its own choice; else with the probability that it gives the guess, as
     for
     every guess that was chosen and not drawn. */
  const keeps = (place, tok) => (place.q.l.temperature > 0 ? place.u < (place.p.get(tok) ?? 0) : tok === place.right);

  /* What so many kept guesses come to as this model's draft: {rate, tokens: a round, speed: over plain decoding, or null}. */
  function outcome(lane, kept, asked) {
    const rate = asked ? kept / asked : 0,
      gamma = lane.rounds.reduce((sum, r) => sum + r.depth, 0) / Math.max(1, lane.rounds.length),
      tokens = P.maths.tokensPerRound(rate, gamma),
      even = lane.base ? (SpecViz.price.of(lane.folded, lane.base.folded)?.even ?? null) : null;
    return { rate, tokens, speed: even ? tokens / even : null };
  }

  const words = (o) =>
    say(o.speed === null ? "draftgame.result.slow" : "draftgame.result", {
      rate: pct(o.rate),
      tokens: o.tokens.toFixed(2),
      speed: o.speed === null ? "" : times(o.speed),
    });

  function view(env) {
    const box = el("div", { class: "pn-box pn-quiz pn-game" }),
      status = el("p", { class: "pn-small", role: "status" }),
      root = el(
        "div",
        { class: "pn-view" },
        K.head(say("draftgame.title"), K.lead(say("draftgame.lead"))),
        box,
        status,
      );
    let lane = null,
      game = [],
      at = 0,
      mine = 0,
      seed = 0;

    function begin() {
      game = lane ? choose(places(lane), ++seed) : [];
      at = mine = 0;
      setText(status, "");
      if (!game.length) box.replaceChildren(env.empty("", say("draftgame.none")));
      else ask();
    }
    function text(place, guess, mark) {
      const b = P.quiz.before(place.q),
        p = el("p", { class: "pn-text", dir: "auto" }, "\u2026");
      for (const parts of [...b.words, ...b.up]) p.append(...SpecViz.dom.parts(parts));
      p.append(el("span", { class: "guess " + mark }, guess === null ? "?" : F.label(lane.folded, guess, 24)));
      return p;
    }
    function ask() {
      const place = game[at];
      box.replaceChildren(
        text(place, null, ""),
        el(
          "div",
          { class: "pn-four", role: "group", "aria-label": say("draftgame.ask") },
          place.candidates.map((tok) => {
            const key = K.button(F.label(lane.folded, tok, 24), () => answer(tok));
            key.dataset.token = String(tok);
            return key;
          }),
        ),
      );
      setText(status, say("draftgame.at", { at: String(at + 1), of: String(game.length) }));
    }
    function answer(tok) {
      const place = game[at],
        good = keeps(place, tok),
        on = K.button(say(at + 1 < game.length ? "draftgame.next" : "draftgame.end"), next, "primary");
      mine += Number(good);
      box.replaceChildren(
        text(place, tok, good ? "acc" : "rej"),
        el(
          "div",
          { class: "pn-verdict", "data-good": String(good), role: "status" },
          el(
            "b",
            null,
            el("span", { class: "sign", "aria-hidden": "true" }, good ? "\u2713" : "\u2715"),
            say(good ? "quiz.kept" : "quiz.refused"),
          ),
          el(
            "span",
            null,
            say(lane.temperature > 0 ? "draftgame.drawn" : "draftgame.greedy", {
              right: F.label(lane.folded, place.right, 24),
              p: pct(place.p.get(tok) ?? 0),
              draft: F.label(lane.folded, place.draft, 24),
              verdict: say(place.draftKept ? "draftgame.draft.kept" : "draftgame.draft.refused"),
            }),
          ),
        ),
        el("div", { class: "pn-row pn-ask" }, on),
      );
      on.focus({ preventScroll: true });
    }
    function next() {
      at++;
      if (at < game.length) ask();
      else finish();
    }
    function finish() {
      const theirs = game.filter((x) => x.draftKept).length,
        rows = [
          { name: say("draftgame.you"), kept: mine },
          { name: say("draftgame.draft", { title: lane.draftName || lane.title }), kept: theirs },
        ].map((x) => ({ ...x, of: outcome(lane, x.kept, game.length) })),
        line = rows.map((x) => `${x.name}: ${words(x.of)}`).join(" ");
      box.replaceChildren(
        el("h3", null, say("draftgame.score", { kept: String(mine), of: String(game.length) })),
        el(
          "dl",
          { class: "pn-score" },
          rows.map((x) => [el("dt", null, x.name), el("dd", null, words(x.of))]),
        ),
        K.small(say("draftgame.how", { rounds: count(game.length, "place") })),
        el(
          "div",
          { class: "pn-row pn-ask" },
          K.button(say("draftgame.again"), begin, "primary"),
          K.button(say("draftgame.copy"), () => K.copy(line, { set: (s) => setText(status, s) })),
          SpecViz.save.keys(
            say("draftgame.card"),
            () => root,
            () => ({ name: "be-the-draft", ...card(rows) }),
          ),
        ),
      );
      setText(status, "");
    }
    /* A card to share: both acceptance rates as bars. */
    function card(rows) {
      const colour = SpecViz.dom.palette(root),
        line = (x, y, text, size, weight, fill) =>
          svg("text", { x, y, fill, "font-family": colour.sans, "font-size": size, "font-weight": weight }, text);
      const drawn = svg(
        "g",
        null,
        rows.map((x, i) =>
          svg(
            "g",
            { transform: `translate(0 ${i * 72})` },
            line(0, 16, x.name, 15, 600, colour.ink),
            svg("rect", { x: 0, y: 26, width: 640, height: 14, rx: 4, fill: colour.line2 }),
            svg("rect", {
              x: 0,
              y: 26,
              width: Math.max(2, 640 * x.of.rate),
              height: 14,
              rx: 4,
              fill: i ? colour.ink3 : colour.ink,
            }),
            line(0, 58, words(x.of), 13, 400, colour.ink2),
          ),
        ),
      );
      return {
        title: say("draftgame.score", { kept: String(mine), of: String(game.length) }),
        caption: say("draftgame.how", { rounds: count(game.length, "place") }),
        from: env.source(),
        drawn,
        w: 640,
        h: 72 * rows.length,
      };
    }
    return {
      root,
      update() {
        const l = env.lane();
        if (l === lane && box.firstChild) return;
        lane = l;
        seed = 0;
        begin();
      },
      destroy() {},
      state: () => ({ at, mine, game }),
    };
  }

  (P.views = P.views || {}).draftgame = view;
  P.draftGame = { places, choose, keeps, outcome, PLACES, CANDIDATES };
})();
