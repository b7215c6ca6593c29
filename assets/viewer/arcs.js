/* Provenance over the text: where a draft was copied from the prompt or the output, its source is marked and an arc leads from
   it to the copy. Drawn for the round in view, when the text stands still; never while a run streams. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { svg } = SV.dom;

  class Arcs {
    constructor(stage) {
      this.stage = stage;
      this.layer = svg("svg", { class: "arcs", "aria-hidden": "true", width: 0, height: 0 });
      stage.page.append(this.layer);
      this.marked = [];
      this.key = "";
      this.round = null;
    }
    clear() {
      if (!this.key) return;
      this.key = "";
      this.layer.replaceChildren();
      this.layer.setAttribute("height", 0);
      for (const e of this.marked) e.classList.remove("src");
      this.marked = [];
    }

    /* round: whose copies are shown, or null; key: changes whenever the text may have moved. */
    paint(lane, round, phase, key) {
      if (!round || !round.nodes.some((n) => n.src && n.src.source === "context")) return this.clear();
      const now = [key, round.i, phase].join();
      if (now === this.key && this.round === round) return;
      this.clear();
      this.key = now;
      this.round = round;
      const box = SV.dom.placeOf(this.stage.page),
        paths = [];
      for (const run of SV.lens.match.runs({ lane, round })) {
        if (run.source !== "context") continue;
        const from = this.sources(lane, run),
          to = run.nodes.map((n) => this.copy(lane, round, n)).filter(Boolean),
          gone = !to.length;
        if (gone)
          to.push(this.stage.span(round.upto - 1)); /* the copy was refused: the arc ends where it would have stood */
        for (const e of from) {
          e.classList.add("src");
          this.marked.push(e);
        }
        if (from.length && to[0]) paths.push(this.arc(SV.dom.placeOf(from[0]), SV.dom.placeOf(to[0]), box, gone));
      }
      this.layer.setAttribute("height", paths.length ? Math.max(0, Math.ceil(box.height) - 2) : 0);
      this.layer.replaceChildren(...paths);
    }
    sources(lane, run) {
      const ids = lane.header ? lane.header.prompt.ids.length : 0,
        out = [];
      for (let i = run.from; i < run.to; i++) {
        const e = i < ids ? this.stage.ask.querySelector(`[data-p="${i}"]`) : this.stage.span(i - ids);
        if (e) out.push(e);
      }
      return out;
    }
    copy(lane, round, node) {
      const pending = this.stage.next.querySelector(`[data-node="${node.id}"]`);
      if (pending) return pending;
      for (let i = round.first; i < round.upto; i++) if (lane.tokens[i].node === node.id) return this.stage.span(i);
      return null;
    }
    arc(a, b, box, gone) {
      const x1 = a.left + a.width / 2 - box.left,
        x2 = b.left + b.width / 2 - box.left,
        y1 = a.top - box.top,
        y2 = b.top - box.top;
      const lift = Math.min(30, 12 + Math.abs(x2 - x1) * 0.06 + Math.abs(y2 - y1) * 0.1);
      return svg("path", {
        class: gone ? "gone" : null,
        d:
          `M${x1.toFixed(1)} ${y1.toFixed(1)}C${x1.toFixed(1)} ${(y1 - lift).toFixed(1)} ${x2.toFixed(1)} ` +
          `${(y2 - lift).toFixed(1)} ${x2.toFixed(1)} ${(y2 - 1).toFixed(1)}m-3.5 -5l3.5 5l3.5 -5`,
      });
    }
  }

  SV.arcs = { Arcs };
})();
