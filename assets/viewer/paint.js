/* One frame: from the folded trace and the cursor to what every panel shows. Panels skip what has not changed. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { setText, setAttr } = SV.dom;
  const F = SV.fold,
    M = SV.metrics;

  function all(b) {
    const lanes = b.list(),
      race = b.race(),
      focus = b.focus(),
      empty = !lanes.length;
    b.root.classList.toggle("race", race);
    b.root.classList.toggle("last", !empty && SV.notice.WAITS.includes(b.state));
    const led = Boolean(b.led) && b.led === SV.dom.who(b.st);
    b.root.classList.toggle("lead", led && b.leads !== "draft");
    b.root.classList.toggle("draftfirst", led && b.leads === "draft");
    b.root.classList.toggle("scaled", Boolean(focus && SV.output.of(focus).grids));
    b.blank.hidden = !empty;
    const follow = b.cur.mode === "follow",
      playing = b.cur.mode === "play";
    /** @type {any} */
    const ctx = { lanes, race, focus, empty, follow, playing, now: b.now(), end: b.end(), base: b.base() };
    /* The first frame of a run, and of each of its lanes, is painted everywhere: nothing of the last run stays standing. */
    const epoch = [SV.dom.who(b.st), ...lanes.map((l) => SV.dom.who(l) + (l.committed ? "+" : ""))].join();
    ctx.fresh = epoch !== b.epoch;
    b.epoch = epoch;
    const runs = (ctx.runs = M.common(lanes));
    ctx.views = lanes.map((lane) => {
      const at = F.at(lane, b.cursorOf(lane));
      return { lane, ...at, m: M.of(lane, at.k, ctx.base, runs) };
    });
    ctx.at = ctx.views.find((v) => v.lane === focus) || null;
    /* What is not on the screen is painted when it comes there, or when the run ends. */
    const out = (part) => !ctx.fresh && b.state === "live" && follow && !part.root.hidden && !b.seenNow.has(part.root);
    ctx.scale = b.scale = SV.passes.scaleOf(race ? lanes : [focus, ctx.base].filter(Boolean));
    b.transport.paint({
      k: ctx.at ? ctx.at.k : 0,
      race,
      playing,
      speed: b.ui.speed,
      canLive: b.state === "live",
      following: follow,
      fresh: ctx.fresh,
      lane: focus,
      lanes,
      empty,
      now: ctx.now,
      end: ctx.end,
      slow: SV.player.slowdown(ctx.end),
      theme: b.theme,
      round: follow ? Math.max(0, (focus ? focus.committed : 0) - 1) : b.cur.round,
      phase: b.cur.phase,
    });
    /* Canvases first: their fonts ask for the page's styles, which is expensive once the text has changed. */
    choose(b, ctx);
    if (!out(b.ribbon)) ribbon(b, ctx);
    if (!out(b.chart))
      b.chart.paint({
        lanes: shownLanes(ctx),
        runs: ctx.runs,
        fresh: ctx.fresh,
        live: b.state === "live",
        end: scaleEnd(b, ctx),
        theme: b.theme,
        width: inside(b, half(b)),
      });
    ledger(b, ctx, !out(b.ledger));
    notice(b, ctx);
    b.headline.paint(ctx);
    b.passes.paint({
      ...ctx,
      theme: b.theme,
      width: b.scrubWidth,
      moving: b.state === "live" && follow,
      round: b.cur.round,
    });
    b.answers.paint();
    b.lanePick.paint(ctx);
    if (!out({ root: b.lanesBox })) stage(b, ctx);
    inspector(b, ctx, b.state === "live" && follow && !ctx.fresh ? b.seenNow : null);
    b.figures.root.hidden = ctx.empty;
    if (!out(b.figures)) figures(b, ctx);
    b.links.refresh();
    followText(b, ctx); /* last: scrolling asks for a layout */
    arcs(b, ctx);
    if (b.bring)
      b.inspector.body.firstElementChild?.scrollIntoView({ block: "nearest", behavior: b.still ? "auto" : "smooth" });
    b.bring = false;
    b.seen = {
      lane: ctx.focus ? ctx.focus.id : null,
      round: ctx.round ? ctx.round.i : -1,
      phase: ctx.phase,
      node: b.inspector.v && b.inspector.v.round === ctx.round ? b.inspector.v.sel : null,
    };
    b.root.dataset.round = String(ctx.round ? ctx.round.i : -1);
    b.root.dataset.phase = String(ctx.phase ?? 0);
    b.root.dataset.mode = b.cur.mode;
    b.root.dataset.layout = race ? "race" : "watch";
  }

  /* Whoever scrolled up is brought back to the newest text by a step, not by a run that streams. */
  function followText(b, { follow }) {
    if (!follow || b.state !== "live") for (const part of b.lanes.values()) if (part.moved) part.stage.follow();
  }

  function arcs(b, { race, focus, follow, at, round, phase }) {
    for (const [id, part] of b.lanes) {
      const on = !race && focus && id === focus.id && !(follow && b.state === "live");
      part.stage.arcs.paint(focus, on ? round : null, phase, on ? [at.k, at.phase, b.width, b.ui.marks].join() : "");
    }
  }

  function notice(b, { race, lanes, focus }) {
    b.notice.paint({
      header: b.header(),
      state: b.state,
      stale: b.stale,
      text: b.statusText,
      button: b.statusButton,
      race: race || lanes.length > 1,
      lost: b.box.lost,
      reopened: b.reopened,
      slow: SV.timing.busySentence(lanes),
      remembered: [SV.notice.remembered(lanes), SV.circles.sentence(race ? null : focus, b.base())]
        .filter(Boolean)
        .join(" "),
      served: lanes.some(SV.serverFacts.is),
      drafts: SV.notice.drafts([...b.st.lanes.values()]),
      scales: Boolean(focus && SV.output.of(focus).grids),
    });
    const h = b.header();
    if (h !== b.askedOf) {
      b.askedOf = h;
      setText(b.promptText, h && h.prompt ? SV.text.label(SV.text.visible(String(h.prompt.text || "")), 400) : "");
      b.promptText.parentElement.hidden = !h?.prompt?.text;
      setText(b.asked, h && h.prompt ? SV.text.label(SV.text.visible(String(h.prompt.text || "")), 400) : "");
    }
    setAttr(b.marksBtn, "aria-pressed", String(b.ui.marks));
    setAttr(b.root, "data-filter", b.ui.filter || "");
    setAttr(b.root, "data-grammar", String(lanes.some(SV.grammarView.any)));
    b.filters.forEach((btn) => {
      setAttr(btn, "aria-pressed", String(b.ui.filter === btn.dataset.filter));
    });
  }

  function order(b, { lanes, race, focus }) {
    if (race) return lanes.slice(0, SV.dom.LANES);
    return focus ? [focus] : [];
  }
  function stage(b, ctx) {
    const list = order(b, ctx);
    for (const [id, part] of b.lanes)
      if (!list.some((l) => l.id === id)) {
        part.root.remove();
        b.lanes.delete(id);
      }
    const scale = Math.max(40, ctx.scale);
    list.forEach((lane, i) => {
      let part = b.lanes.get(lane.id);
      if (!part) {
        part = new SV.lane.Lane(lane.id, b);
        b.lanes.set(lane.id, part);
      }
      if (b.lanesBox.children[i] !== part.root) b.lanesBox.insertBefore(part.root, b.lanesBox.children[i] || null);
      const v = ctx.views.find((x) => x.lane === lane);
      part.paint(lane, {
        k: v.k,
        phase: v.phase,
        m: v.m,
        race: ctx.race,
        base: !ctx.race && lane !== ctx.focus,
        focus: lane === ctx.focus,
        live: b.state === "live" && ctx.follow,
        motion: ctx.playing && !b.still && !ctx.race,
        sel: pick(b),
        filter: b.ui.filter,
        marks: b.ui.marks,
        theme: b.theme,
        scale,
        width: railWidth(b, ctx),
        shape: [b.width, ctx.race].join(),
      });
    });
  }

  const pick = (b) => b.ui.sel;

  /* Widths follow from the board's width alone: asking the page for them between writes would cost a layout each time. */
  const inside = (b, panel) => Math.max(160, panel - 2 - (b.narrow ? 32 : 40));
  const half = (b) => (b.mid ? b.width : (b.width - 16) / 2);
  const railWidth = (b, { race }) => inside(b, race ? b.width : half(b)) - (race && !b.narrow ? 184 + 132 + 48 : 0);

  /* At rest after k rounds: the last one that drafted anything. A run often ends on a round with nothing to see. */
  function lastRoundWithDraft(lane, k) {
    for (let i = k - 1; i > 0; i--) if (lane.rounds[i].nodes.some((n) => !n.probe)) return i;
    return Math.max(0, k - 1);
  }

  /* The round in view, and how far it has come. */
  function choose(b, ctx) {
    const { focus, at, race } = ctx;
    let round = null,
      rested = false,
      phase = 4;
    if (focus && focus.rounds.length) {
      const sel = b.ui.sel && b.ui.sel.lane === focus.id ? b.ui.sel : null;
      if (sel && focus.rounds[sel.round] && (sel.round < at.k || at.phase)) {
        round = focus.rounds[sel.round];
        phase = sel.round < at.k ? 4 : at.phase;
      } else if (!race && !ctx.follow) {
        round = focus.rounds[b.cur.round];
        phase = b.cur.phase;
      } else {
        rested = !ctx.playing && b.state !== "live";
        round = focus.rounds[rested ? lastRoundWithDraft(focus, at.k) : Math.max(0, at.k - 1)];
        phase = at.k ? 4 : at.phase;
      }
      if (round && !round.draft && !round.commit) round = null;
    }
    ctx.round = round;
    ctx.phase = phase;
    ctx.rested = Boolean(rested && round && round.i < at.k - 1);
  }

  function inspector(b, { focus, at, race, round, phase, rested, follow, fresh }, seen) {
    const sel = b.ui.sel && round && b.ui.sel.lane === focus.id && b.ui.sel.round === round.i ? b.ui.sel.node : null;
    b.inspector.paint({
      lane: focus,
      round,
      phase,
      rested,
      k: at ? at.k : 0,
      sel,
      narrow: b.narrow,
      mid: b.mid,
      race,
      width: race ? b.width : half(b),
      theme: b.theme,
      live: b.state === "live" && follow && !b.ui.sel && !fresh,
      seen,
    });
  }

  /* While a run grows, the time axis grows in steps, so that it does not crawl. */
  function scaleEnd(b, ctx) {
    const end = ctx.race || !ctx.focus ? ctx.end : Math.max(1e-6, SV.ribbon.endOfLane(ctx.focus));
    if (b.state !== "live") return end;
    const step = SV.dom.niceStep(end / 3);
    return Math.ceil(end / step) * step;
  }
  function shownLanes(ctx) {
    return ctx.race
      ? ctx.views.slice(0, SV.dom.LANES)
      : ctx.views.filter((v) => v.lane === ctx.focus || M.isBaseline(v.lane));
  }
  function ribbon(b, ctx) {
    b.ribbon.paint({
      lanes: shownLanes(ctx).map((v) => v.lane),
      now: ctx.now,
      end: scaleEnd(b, ctx),
      focus: ctx.focus,
      round: ctx.phase === 4 ? ctx.round : null,
      theme: b.theme,
      width: inside(b, half(b)),
      live: b.state === "live" && ctx.follow && !ctx.fresh,
    });
  }
  function figures(b, ctx) {
    const rows = ctx.views.slice(0, SV.dom.LANES),
      end = rows.every(({ lane, k }) => k >= lane.committed) ? SV.verdict.verdict(rows.map((x) => x.lane)) : null;
    const doubt = end && end.level;
    if (ctx.race) b.figures.many(rows, ctx.base, Boolean(doubt));
    else if (ctx.at) b.figures.one(ctx.focus, ctx.at.m, ctx.at.k, ctx.base);
  }
  function ledger(b, ctx, seen) {
    b.ledger.paint({
      open: seen && !b.ledger.root.classList.contains("shut"),
      views: ctx.views.slice(0, SV.dom.LANES),
      base: ctx.base,
      theme: b.theme,
      focus: ctx.focus,
      shown: ctx.race && !ctx.empty,
      moving: ctx.playing || b.state === "live",
      fresh: ctx.fresh,
    });
  }

  SV.paint = { all };
})();
