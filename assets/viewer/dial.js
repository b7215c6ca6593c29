/* A dial under the headline: the same run once more, beside a drafter whose tokens are accepted as often as set (the oracle).
   Wrong tokens are proposed on purpose, so its text is the target's and its passes take real time. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText } = SV.dom;
  const START = 0.8,
    LENGTH = 4 /* tokens a draft, where the run's method has no length of its own */,
    LONGEST = 16 /* that the oracle drafts */,
    BESIDE = 2; /* methods of the run that race again beside it */

  /* Tokens a pass of drafts of that length, each token accepted with the same probability (2211.17192). */
  const tokensPerPass = (acceptance, gamma) => {
    let sum = 1;
    for (let i = 1; i <= gamma; i++) sum += acceptance ** i;
    return sum;
  };
  function lengthOf(lane) {
    const own = lane?.header?.knobs?.gamma;
    return Number.isInteger(own) && own >= 1 ? Math.min(own, LONGEST) : LENGTH;
  }
  /* What is run: the same prompt and request, its first methods and the oracle as it is set. set: of the page's settings(). */
  function again(set, acceptance, gamma) {
    const isOracle = (one) => (one.method ?? one) === "oracle",
      own = set.methods.filter((one) => !isOracle(one)).slice(0, BESIDE),
      knobs = Object.fromEntries(Object.entries(set.knobs).filter(([name]) => name !== "oracle"));
    return { ...set, methods: [...own, { method: "oracle", knobs: { acceptance, gamma } }], knobs, tab: "race" };
  }

  class Dial {
    /* board: it reads the run from; place: the button stands before it. root: what the button opens. */
    constructor(board, place) {
      this.board = board;
      this.lane = null; /* that is asked about */
      this.key = el("button", { class: "pays whatif", hidden: true, on: { click: () => this.open(this.root.hidden) } });
      setText(this.key, SV.messages.say("dial.ask"));
      this.key.setAttribute("aria-expanded", "false");
      place.before(this.key);
      this.range = el("input", { type: "range", min: 0.05, max: 1, step: 0.05, on: { input: () => this.write() } });
      this.range.value = String(START);
      this.range.setAttribute("aria-label", SV.messages.say("dial.label"));
      this.says = el("span", { role: "status" });
      this.go = el("button", { class: "go", on: { click: () => this.run() } });
      setText(this.go, SV.messages.say("dial.go"));
      this.root = el("div", { class: "dial", hidden: true }, this.range, this.says, this.go);
    }
    open(on) {
      this.root.hidden = !on;
      this.key.setAttribute("aria-expanded", String(on));
      if (on) this.write();
    }
    /* focus: the lane that the headline is about, null where there is none. */
    paint(focus) {
      const { state } = this.board,
        set = focus && this.settings(),
        ended = state !== "live" && !SV.notice.WAITS.includes(state),
        can = Boolean(set && ended && !SV.serverFacts.is(focus) && !SV.batch.headline(focus, null, true));
      this.lane = can ? focus : null;
      this.key.hidden = !can || Boolean(globalThis.SpecVizPage.lacks(again(set, START, LENGTH)));
      if (this.key.hidden) this.open(false);
      else if (!this.root.hidden) this.write();
    }
    /* The choice that made this run, as the page's controls hold it; null on a board without a page. */
    settings() {
      return globalThis.SpecVizPage?.settings?.(this.board.list().map((lane) => lane.header)) ?? null;
    }
    write() {
      const gamma = lengthOf(this.lane),
        a = Number(this.range.value);
      setText(
        this.says,
        SV.messages.say("dial.says", {
          acceptance: a.toFixed(2),
          length: SV.dom.count(gamma, "token"),
          tokens: tokensPerPass(a, gamma).toFixed(2),
        }),
      );
    }
    run() {
      globalThis.SpecVizPage.run(again(this.settings(), Number(this.range.value), lengthOf(this.lane)));
    }
  }

  SV.dial = { Dial, again, tokensPerPass };
})();
