/* The rail under a lane: what its newest rounds drafted and did not keep, and how a refused token falls down to it. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, parts, who } = SV.dom;
  const CELLS = 14;

  /* What a round lost, and how wide that is; kept between paintings, because older rounds do not change. */
  function cellOf(lane, r, sel) {
    const gone = r.nodes.filter((n) => !n.probe && SV.fold.verdictOf(r, n.id) !== "acc");
    if (!gone.length) return { cell: null, w: 0 };
    const tree = r.kind === "tree";
    const list = (tree ? gone.filter((n) => SV.fold.verdictOf(r, n.id) === "rej") : gone).slice(0, 8);
    const cell = el("div", { class: "cell", "data-cell": r.i }, el("em", null, String(r.i + 1)));
    let w = 16; /* an estimate is enough to know whether the row is full, and asks for no layout */
    for (const n of list) {
      const v = SV.fold.verdictOf(r, n.id),
        label = SV.fold.label(lane, n.tok),
        patch = SV.output.alone(lane, n.tok).filter((p) => typeof p !== "string" && p.px);
      w += 8 + Array.from(label).length * 7.9;
      cell.append(
        el(
          "bdi",
          null,
          el(
            "span",
            {
              class: "t " + v + (sel === n.id ? " sel" : ""),
              "data-v": SV.tokens.VERDICT_NAMES[v],
              "data-node": n.id,
              "data-forced": SV.grammarView.forced(r, n.id),
            },
            patch.length ? parts(patch) : label,
          ),
        ),
      );
    }
    const rest = gone.length - list.length;
    if (rest) {
      cell.append(el("em", null, "+" + rest + (tree ? " unexamined" : "")));
      w += tree ? 96 : 28;
    }
    return { cell, w };
  }

  SV.rail = {
    /* One cell a round; only the newest few, because older ones scroll out of sight anyway. */
    paintRail(lane, view) {
      const judged = view.phase >= 3 ? view.k + 1 : view.k;
      const sel = view.sel && view.sel.lane === this.id ? view.sel : null;
      const key = [who(lane), judged, view.phase >= 3, view.width, sel && sel.round + ":" + sel.node, view.race].join();
      if (key === this.keys.rail) return;
      this.keys.rail = key;
      const cells = [],
        width = ((view.width || 600) - 16) / this.board.big,
        old = this.keys.cellsOf === lane ? this.kept : new Map();
      let used = 0;
      this.kept = new Map();
      this.keys.cellsOf = lane;
      for (let i = judged - 1; i >= 0 && used < width && cells.length < CELLS && judged - i < 200; i--) {
        const r = lane.rounds[i],
          mark = sel && sel.round === i ? sel.node : null,
          had = old.get(i),
          now = i === judged - 1;
        const c =
          had && had.sealed && had.mark === mark ? had : { mark, sealed: Boolean(r.commit), ...cellOf(lane, r, mark) };
        this.kept.set(i, c);
        if (!c.cell) continue;
        if (c.now !== now) {
          c.now = now;
          c.cell.classList.toggle("now", now);
        }
        cells.unshift(c.cell);
        used += c.w + 20;
      }
      if (!cells.length)
        cells.push(
          el(
            "span",
            { class: "none" },
            SV.metrics.isBaseline(lane)
              ? "Nothing is drafted, so nothing is rejected."
              : SV.serverFacts.is(lane)
                ? "Which tokens were rejected no server tells: unknown."
                : "Rejected tokens land here.",
          ),
        );
      for (const gone of [...this.cells.children]) if (!cells.includes(gone)) gone.remove();
      cells.forEach((cell, i) => {
        if (this.cells.children[i] !== cell) this.cells.insertBefore(cell, this.cells.children[i] || null);
      });
      this.cells.classList.toggle("few", used <= width);
      this.cells.classList.toggle("over", used > width);
    },

    /* The fall: a copy of each refused token travels from its place in the text down to the rail. */
    positions() {
      const at = new Map();
      for (const s of this.stage.next.querySelectorAll("[data-node]")) at.set(s.dataset.node, SV.dom.placeOf(s));
      return at;
    },
    drop(from) {
      const home = SV.dom.placeOf(this.board.root),
        k = this.board.ui.speed ? 1 / this.board.ui.speed : 0.05;
      let i = 0;
      for (const to of this.cells.querySelectorAll(".cell.now [data-node]")) {
        const a = from.get(to.dataset.node),
          b = SV.dom.placeOf(to),
          ghost = to.cloneNode(true);
        const delay = (80 + 110 * i++) * k;
        if (!a) {
          to.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 260 * k, delay, fill: "backwards" });
          continue;
        }
        ghost.removeAttribute("data-node");
        ghost.classList.add("ghost");
        ghost.style.lineHeight = Math.round(a.height) + "px";
        ghost.style.left = a.left - home.left + "px";
        ghost.style.top = a.top - home.top + "px";
        this.board.root.append(ghost);
        to.style.visibility = "hidden";
        const dx = b.left - a.left,
          dy = b.top - a.top;
        const fall = ghost.animate(
          [
            { transform: "none" },
            { transform: `translate(${dx * 0.35}px, ${dy * 0.65}px)`, offset: 0.5 },
            { transform: `translate(${dx}px, ${dy}px)` },
          ],
          { duration: 520 * k, delay, fill: "both", easing: "cubic-bezier(.4,0,.2,1)" },
        );
        const end = () => {
          ghost.remove();
          to.style.visibility = "";
        };
        fall.onfinish = end;
        fall.oncancel = end;
      }
    },
  };
})();
