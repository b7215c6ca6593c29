/* Lenses: what one family of methods has to show. A record {kind, data} of the trace finds its picture here:
     SpecViz.lens[kind] = {title, draw(host, notes, context)}
   host     an empty element to append to; text only as text nodes
   notes    the data of this round's records of this kind, in order; from a trace, so of any shape: read them with `tools`
   context  {lane, round, phase, board, width, label(token), verdict(node), history() -> [{round, data}] up to this round}
   A kind without a picture is shown as a plain table. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el } = SV.dom;
  const MOST = 6,
    BACK = 400;
  const lens = (SV.lens = Object.create(null));

  const num = (x, other = null) => (typeof x === "number" && Number.isFinite(x) ? x : other);
  const int = (x, other = null) => (Number.isInteger(x) && Math.abs(x) < 2 ** 40 ? x : other);
  const list = (x, most = 256) => (Array.isArray(x) ? x.slice(0, most) : []);
  const nums = (x, most = 256) => list(x, most).map((y) => num(y, 0));
  const ints = (x, most = 256) => list(x, most).filter(Number.isInteger);
  const word = (x, most = 60) =>
    SV.text.joined(SV.text.visible(typeof x === "string" ? x : typeof x === "number" ? String(x) : "")).slice(0, most);
  /* A few digits, as people read them. */
  const short = (x) => {
    const n = num(x);
    return n === null
      ? "\u2013"
      : Number.isInteger(n)
        ? String(n)
        : Math.abs(n) >= 100
          ? n.toFixed(0)
          : Math.abs(n) >= 10
            ? n.toFixed(1)
            : Math.abs(n) >= 0.001
              ? n.toFixed(3).replace(/0+$/, "").replace(/\.$/, "")
              : n.toExponential(1);
  };
  const say = (...kids) => el("p", { class: "lsay" }, ...kids);
  const mono = (s) => el("bdi", { class: "mono" }, s);
  const chip = (s, cls) => el("bdi", { class: "ltok" + (cls ? " " + cls : "") }, s);

  /* Every record of one kind up to this round; thinned from the front, because a picture has limited space. */
  function history(lane, kind, upto) {
    const out = [];
    for (let i = Math.min(upto, lane.rounds.length - 1); i >= 0 && out.length < BACK; i--)
      for (const rec of lane.rounds[i].lens) if (rec.kind === kind) out.push({ round: i, data: rec.data });
    return out.reverse();
  }
  function contextOf(v, board, kind) {
    const known = new Map();
    return {
      lane: v.lane,
      round: v.round,
      phase: v.phase,
      board,
      width: Math.max(240, v.inner || 480),
      narrow: v.narrow,
      label: (tok, most) => (Number.isInteger(tok) ? SV.fold.label(v.lane, tok, most) : "?"),
      verdict: (id) => SV.fold.verdictOf(v.round, id, v.phase),
      history: (other) => {
        const k = other || kind;
        if (!known.has(k)) known.set(k, history(v.lane, k, v.round.i));
        return known.get(k);
      },
    };
  }

  /* The fallback: names and values, nested ones as JSON. */
  function table(host, notes) {
    for (const data of notes)
      host.append(
        el(
          "dl",
          { class: "ltable" },
          Object.entries(data || {})
            .slice(0, 24)
            .flatMap(([k, x]) => [
              el("dt", null, word(k)),
              el(
                "dd",
                { class: "mono" },
                SV.dom.parts(
                  SV.text
                    .visible(typeof x === "string" ? x : (JSON.stringify(x) ?? ""))
                    .slice(0, 24)
                    .map((p) => (typeof p === "string" ? p.slice(0, 600) : p)),
                ),
              ),
            ]),
        ),
      );
  }

  const HIDDEN = new Set(["any", "draw", "tools", "register"]);
  const known = (kind) =>
    typeof kind === "string" && !HIDDEN.has(kind) && lens[kind] && typeof lens[kind].draw === "function"
      ? lens[kind]
      : null;
  const kinds = (r) => [...new Set(r.lens.map((rec) => rec.kind))];
  const copied = (r) => r.nodes.some((n) => n.src);
  const shown = (v) => {
    const list = kinds(v.round).slice(0, MOST);
    if (copied(v.round) && !list.some((k) => known(k) && known(k).copies)) list.unshift("copied");
    return list;
  };

  const hasNotes = (r) => r.lens.length > 0 || copied(r);
  /* The tab stays while the lane has anything to show; a round without notes shows the latest one. */
  const any = (v) => Boolean(v.round && (v.lane.lens || hasNotes(v.round)));
  function draw(v, board) {
    const card = el("div", { class: "card lens" }),
      at = v.round;
    if (!hasNotes(at)) {
      let i = at.i;
      while (i >= 0 && at.i - i < BACK && !hasNotes(v.lane.rounds[i])) i--;
      card.append(say("Nothing to show in this round."));
      if (i < 0 || !hasNotes(v.lane.rounds[i])) return card;
      v = { ...v, round: v.lane.rounds[i], phase: 4 };
      card.append(say(SV.messages.say("lens.last", { round: String(i + 1) })));
    }
    for (const kind of shown(v)) {
      const notes = v.round.lens
          .filter((rec) => rec.kind === kind)
          .map((rec) => rec.data)
          .slice(0, 8),
        how = known(kind),
        host = el("div", { class: "lhost", "data-lens": kind, "data-of": v.round === at ? null : v.round.i });
      card.append(el("section", { class: "lone" }, el("h3", null, how ? how.title : word(kind)), host));
      try {
        if (how) how.draw(host, notes, contextOf(v, board, kind));
        else table(host, notes);
      } catch {
        host.replaceChildren();
        table(host, notes);
      }
    }
    return card;
  }

  Object.defineProperties(lens, {
    any: { value: any },
    draw: { value: draw },
    tools: { value: { num, int, list, nums, ints, word, short, say, mono, chip, history, table } },
  });
})();
