/* The lane switch of Watch: one lane is large, the others are names with their speed. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText, setAttr, rate } = SV.dom;

  class LaneSwitch {
    constructor(board) {
      this.board = board;
      this.root = el("div", { class: "lanepick", role: "group", "aria-label": "Lane shown large", hidden: true });
      this.buttons = new Map();
    }
    paint({ lanes, race, focus, views, runs }) {
      this.root.hidden = race || !lanes.length;
      if (this.root.hidden) return;
      const key = lanes.map((l) => l.id).join();
      if (key !== this.key) this.build(lanes, key);
      for (const { lane } of views) {
        const b = this.buttons.get(lane.id),
          m = SV.metrics.of(lane, lane.committed, null, runs);
        setText(b.name, SV.stage.titleOf(lane));
        setText(
          b.rate,
          lane.error ? "failed" : m.tokens_per_second === null ? "" : rate(m.tokens_per_second) + " tok/s",
        );
        setAttr(b.root, "aria-pressed", String(lane === focus));
      }
    }
    build(lanes, key) {
      this.key = key;
      this.buttons.clear();
      for (const lane of lanes) {
        const b = { name: el("span"), rate: el("small") };
        b.root = el(
          "button",
          { "data-pick": lane.id, on: { click: () => this.board.focusLane(lane.id) } },
          b.name,
          b.rate,
        );
        this.buttons.set(lane.id, b);
      }
      this.root.replaceChildren(...[...this.buttons.values()].map((b) => b.root));
    }
  }

  SV.laneSwitch = { LaneSwitch };
})();
