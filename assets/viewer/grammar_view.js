/* Structured output on the board: what the grammar of a request allowed and forbade at the chosen token, and which tokens
   it forced. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, pct } = SV.dom;
  const finite = (x) => typeof x === "number" && Number.isFinite(x);
  const list = (x) => (Array.isArray(x) ? x : []);
  const note = (r, kind) => (r && r.lens.findLast((x) => x.kind === kind)?.data) || null;

  /* The place of a node, or of "tail", among the tokens that the round wrote; -1 for none. */
  function place(r, id) {
    if (!r.commit) return -1;
    return id === "tail" ? r.path.length : r.path.indexOf(id);
  }
  /* {allowed, removed, top: [token, probability]} at a token that was written; null where no grammar was asked for. */
  function at(r, id) {
    const d = note(r, "grammar"),
      i = place(r, id);
    if (!d || i < 0) return null;
    const allowed = list(d.allowed)[i],
      removed = list(d.removed)[i],
      top = list(d.top)[i];
    return finite(allowed) && finite(removed) ? { allowed, removed, top: list(top).length === 2 ? top : null } : null;
  }
  /* Whether the grammar left no choice at a token: it was drafted as forced, or one token was allowed where it was written. */
  function forced(r, id) {
    if (!r || !r.lens.length) return false;
    const drafted = list(note(r, "forced")?.tokens);
    if (typeof id === "number" && r.nodes[id] && drafted[id] === r.nodes[id].tok) return true;
    return at(r, id)?.allowed === 1;
  }
  const any = (lane) => lane.rounds.some((r) => r.lens.some((x) => x.kind === "grammar" || x.kind === "forced"));

  /* What it says under Why and Probabilities; null without a grammar. */
  function draw(v) {
    const r = v.round,
      id = v.sel === "tail" ? (SV.fold.tailNode(r) ?? "tail") : v.sel,
      here = v.phase >= 3 ? at(r, id) : null;
    if (!here) return null;
    const first = here.top && SV.fold.label(v.lane, here.top[0], 24),
      tok = id === "tail" ? r.commit.tail.tok : r.nodes[id].tok,
      message = here.allowed === 1 ? "grammar.forced" : here.removed > 0 ? "grammar.forbade" : "grammar.free",
      values = { count: here.allowed, share: pct(here.removed) };
    const box = el("div", { class: "gram" }, el("p", { "data-message": message }, SV.messages.say(message, values)));
    if (here.top && here.top[0] !== tok)
      box.append(
        el(
          "p",
          { "data-message": "grammar.first" },
          SV.messages.parts("grammar.first", { token: el("bdi", { class: "mono" }, first), p: pct(here.top[1]) }),
        ),
      );
    box.append(
      el(
        "div",
        { class: "grambar", role: "img", "aria-label": SV.messages.say("grammar.bar", values) },
        el("i", { class: "fp", css: { width: (1 - here.removed) * 100 + "%" } }),
        el("i", { class: "fx", css: { width: here.removed * 100 + "%" } }),
      ),
    );
    return box;
  }

  SV.grammarView = { at, forced, any, draw };
})();
