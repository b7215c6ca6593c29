/* Several answers (n) to one prompt: each is a set of lanes of the trace, and the board shows one set at a time. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText, setAttr } = SV.dom;
  const { answerOf } = SV.metrics;

  class Answers {
    constructor(board) {
      this.board = board;
      this.root = el("div", { class: "lanepick answers", role: "group", "aria-label": "Answer shown", hidden: true });
      this.buttons = new Map();
    }
    paint() {
      const firsts = new Map();
      for (const lane of this.board.st.lanes.values())
        if (lane.header?.answer && !firsts.has(answerOf(lane))) firsts.set(answerOf(lane), lane);
      this.root.hidden = !firsts.size;
      if (this.root.hidden) return;
      const key = [...firsts.values()].map(SV.dom.who).join();
      if (key !== this.key) this.build(firsts, key);
      for (const [index, button] of this.buttons)
        setAttr(button, "aria-pressed", String(index === this.board.ui.answer));
    }
    build(firsts, key) {
      this.key = key;
      this.buttons.clear();
      for (const [index, { header }] of firsts) {
        const number = el("span"),
          seed = el("small"),
          sampled = header.sampling.temperature > 0;
        setText(
          number,
          SV.messages.say("answers.number", { number: String(index + 1), count: String(header.answer.of) }),
        );
        setText(
          seed,
          sampled
            ? SV.messages.say("answers.seed", { seed: String(header.sampling.seed) })
            : SV.messages.say("answers.greedy"),
        );
        this.buttons.set(
          index,
          el("button", { "data-answer": index, on: { click: () => this.board.chooseAnswer(index) } }, number, seed),
        );
      }
      this.root.replaceChildren(...this.buttons.values());
    }
  }

  /* For the board. */
  const methods = {
    chooseAnswer(index) {
      this.ui.answerChosen = true;
      this.showAnswer(index);
    },
    /* The same method in another answer, at the same moment of the engine's clock. */
    showAnswer(index) {
      if (this.ui.answer === index) return;
      const at = this.list().indexOf(this.focus()),
        t = this.now(),
        last = this.cur.mode === "follow" || t >= this.end() - 1e-6 || this.ended();
      this.ui.answer = index;
      this.ui.focus = this.list()[at]?.id ?? null;
      this.ui.sel = null;
      this.standAt(last ? this.end() : t);
      this.later();
    },
    /* A run in flight shows the answer that is being written, unless a person chose one or looks back. */
    followAnswer(records) {
      if (this.cur.mode !== "follow" || this.ui.answerChosen) return;
      const begun = records.filter((r) => r?.type === "header").map((r) => this.st.lanes.get(r.lane));
      if (begun.length && begun[begun.length - 1]) this.showAnswer(answerOf(begun[begun.length - 1]));
    },
  };

  SV.answers = { Answers, methods };
})();
