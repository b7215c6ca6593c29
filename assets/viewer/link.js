/* Hover and focus tie the three views of one drafted token together: its node in the tree, its row of the attention mask, and
   its text (or its place on the rail). Only classes change; nothing is painted anew. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const number = (x) => (x === "tail" ? x : x === undefined || x === "" ? null : Number(x));

  /* A definition that would open behind what the page keeps at its lower edge opens upwards. */
  function lift(tip, root) {
    if (!tip) return;
    tip.classList.remove("up");
    const covered = parseFloat(getComputedStyle(root).getPropertyValue("--sv-below")) || 0;
    tip.classList.toggle("up", tip.getBoundingClientRect().bottom > innerHeight - covered);
  }

  class Links {
    constructor(board) {
      this.board = board;
      this.lit = [];
      this.spot = null;
      for (const name of ["pointerover", "focusin"])
        board.root.addEventListener(name, (e) => {
          this.over(e);
          lift(e.target.closest?.(".term, .sv:not(.mid) th")?.querySelector(".tip"), board.root);
        });
      board.root.addEventListener("pointerleave", () => this.set(null));
    }
    over(e) {
      const to = this.find(e.target),
        was = this.spot;
      if (to && was && to.lane === was.lane && to.round === was.round && to.node === was.node) return;
      if (to || was) this.set(to);
    }

    /* Which drafted token lies under the pointer: {lane, round, node}, or null. */
    find(target) {
      if (!target || !target.closest) return null;
      const row = target.closest(".lane[data-lane]"),
        at = target.closest("[data-node]"),
        v = this.board.inspector.v;
      if (row) {
        const lane = this.board.st.lanes.get(Number(row.dataset.lane)),
          cell = target.closest("[data-cell]"),
          t = target.closest("[data-i]");
        const tok = lane && t && t.dataset.i !== "" ? lane.tokens[Number(t.dataset.i)] : null;
        if (tok) return { lane: lane.id, round: tok.round, node: tok.node };
        if (!lane || !at) return null;
        return {
          lane: lane.id,
          round: cell ? Number(cell.dataset.cell) : this.board.lanes.get(lane.id).view.k,
          node: number(at.dataset.node),
        };
      }
      return at && v && v.round && this.board.inspector.root.contains(at) && !at.closest("[data-of]")
        ? { lane: v.lane.id, round: v.round.i, node: number(at.dataset.node) }
        : null;
    }

    set(spot) {
      for (const e of this.lit) e.classList.remove("hot");
      this.lit = spot && spot.node !== null ? this.places(spot) : [];
      for (const e of this.lit) e.classList.add("hot");
      const inside = spot && this.shown(spot);
      this.board.inspector.hovered?.(inside ? spot.node : null);
      this.spot = spot;
    }
    refresh() {
      if (this.spot) this.set(this.spot);
    }
    shown({ lane, round }) {
      const v = this.board.inspector.v;
      return Boolean(v && v.round && v.lane.id === lane && v.round.i === round);
    }

    places(spot) {
      const found = [],
        lane = this.board.st.lanes.get(spot.lane),
        part = this.board.lanes.get(spot.lane),
        r = lane && lane.rounds[spot.round];
      if (!r) return found;
      if (this.shown(spot))
        found.push(
          ...[...this.board.inspector.root.querySelectorAll(`[data-node="${spot.node}"]`)].filter(
            (e) => !e.closest("[data-of]"),
          ),
        ); /* a lens may show an earlier round */
      if (!part) return found;
      for (let i = r.first; i < r.upto; i++)
        if (lane.tokens[i].node === spot.node) {
          const s = part.stage.span(i);
          if (s) found.push(s);
        }
      found.push(...part.cells.querySelectorAll(`[data-cell="${spot.round}"] [data-node="${spot.node}"]`));
      if (part.view && part.view.k === spot.round)
        found.push(...part.stage.next.querySelectorAll(`[data-node="${spot.node}"]`));
      return found;
    }
  }

  SV.link = { Links };
})();
