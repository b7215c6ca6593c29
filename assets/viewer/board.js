/* The board: owns the folded trace and one cursor, and paints both in one animation frame.

   For panels and pages. SpecVizBoard.mount(root, {frames, trace, options}) returns the api:
     push(text)         live frames, NDJSON (docs/TRACE.md)
     load(trace)        records, or the text of an imported file; returns "" or one sentence with the reason for a refusal
     trace()            the records on the board, in the order they came
     on("change", f)    f(where) after the cursor, the selection, the layout or the trace changed; returns a function that ends it
     where()            {layout, lane, round, phase, node, tab, t}: what the inspector shows; node is a node id, "tail" or null,
                        phase 1 drafted, 2 verifying, 3 judged, 4 committed; t seconds of engine time
     goto({...})        any of layout, lane, round, phase, node, tab; t: in a race, seconds of engine time; stops playback;
                        show: the answer comes into sight
     lead(tab)          a tab of the inspector that stands above the draft, for a recording that is about it; "draft": on a phone
                        the draft stands above the text; null: none
     toTop()            scrolls the page to its start, on a phone to the headline
     end()              seconds of engine time until the last lane ends
     setLayout(name)    "watch" (one lane large, the others behind a lane switch), "race" (all lanes on one clock),
                        null (by the trace)
     play(), pause()
     link()             the same place as a hash: "#layout=watch&lane=1&round=7&phase=4&node=2&tab=why"
     follow(hash)       opens such a place; true where there was one
     blank(text)        an empty board with one sentence
     say(text, button)  a sentence over what is on the board; button: {name, press}, beside it
     caption(what)      a line under the headline about what is seen: {title, text, press: to the whole story}; null: none
     cut(id)            the server of the run on the board is gone; id: of the sentence, "cut.gone" or "cut.back"
     asked()            the prompt of what is on the board, or null
     destroy()
   Options: layout, autoplay (false: rest on the last round), embed (only the text and the transport), plotly (false: never),
   keys (false: no keys of the page, only those pressed inside the board), drawer (true: in Watch figures wait behind one key).
   Pure parts to build on: SpecViz.metrics, SpecViz.fold, SpecViz.reader, SpecViz.dom, SpecViz.lens; colours: the
   --sv-* variables. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { palette, who } = SV.dom;
  const BEAT = 100; /* ms between two paints of a run in flight */

  class Board {
    constructor(root, options) {
      this.painted = 0;
      this.paintRate = new SV.paintRate.PaintRate();
      this.root = root;
      this.options = { ...options };
      this.listeners = new Set();
      this.seen = null;
      this.caption = null; /* api.caption */
      this.led = null; /* the trace whose inspector has a tab above the draft */
      this.cur = { mode: "follow", round: 0, phase: 4, t: 0, left: null };
      this.ui = { focus: null, sel: null, filter: null, speed: 1, marks: false };
      this.calm = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)");
      this.reset();
      this.box = SV.frames.intake();
      SV.colours.applyPalette(root);
      this.build();
      this.listen();
      SV.boardLayout.measure(this);
      this.setEmbed(this.options.embed);
      SV.intake.setState.call(this, "idle");
    }

    reset() {
      this.st = SV.fold.initial();
      this.records = [];
      this.state = "idle";
      this.statusText = "";
      this.statusButton = null;
      this.statusState = null;
      this.stale = false;
      this.reopened = false;
      Object.assign(this.cur, { mode: "follow", round: 0, phase: 4, t: 0, left: null });
      Object.assign(this.ui, { focus: null, sel: null, answer: 0, answerChosen: false });
    }

    build() {
      this.notice = new SV.notice.Notice();
      this.ledger = new SV.race.Race(this);
      this.transport = new SV.transport.Transport(this);
      this.inspector = new SV.inspector.Inspector(this);
      this.ribbon = new SV.ribbon.Ribbon(this);
      this.chart = new SV.chart.Chart(this);
      this.figures = new SV.figures.Figures();
      SV.legend.build(this);
      this.headline = new SV.headline.Headline(this, this.notice);
      this.passes = new SV.passes.Passes(this);
      this.answers = new SV.answers.Answers(this);
      this.lanePick = new SV.laneSwitch.LaneSwitch(this);
      this.lanesBox = SV.dom.el("div", { class: "lanes" });
      SV.boardLayout.build(this);
    }

    listen() {
      this.onKey = (e) => SV.keys.handle(this, e);
      this.root.addEventListener("keydown", this.onKey);
      this.onDocKey = (e) => {
        if (e.target === document.body && this.root.clientWidth) SV.keys.handle(this, e);
      };
      if (this.options.keys !== false) document.addEventListener("keydown", this.onDocKey);
      this.sized = new ResizeObserver(() => {
        SV.boardLayout.measure(this);
        this.later();
      });
      this.sized.observe(this.root);
      this.sized.observe(this.transport.scrub);
      this.watchSight();
      this.themed = new MutationObserver(() => this.retheme());
      for (const n of [document.documentElement, document.body])
        this.themed.observe(n, { attributes: true, attributeFilter: ["class", "style"] });
      this.themed.observe(this.root, { attributes: true, attributeFilter: ["data-colours"] });
      this.dark = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
      this.onScheme = () => this.retheme();
      this.dark?.addEventListener?.("change", this.onScheme);
      this.retheme();
    }
    retheme() {
      SV.colours.show(this);
      this.colors = palette(this.root);
      this.theme = SV.text.hash(Object.values(this.colors).join());
      this.later();
    }
    setEmbed(on) {
      this.root.classList.toggle("embed", Boolean(on));
    }
    /* While a run streams, only what can be seen is painted: see paint.js. */
    watchSight() {
      this.seenNow = new Set();
      this.sight = new IntersectionObserver(
        (list) => {
          for (const { target, isIntersecting } of list)
            if (isIntersecting) this.seenNow.add(target);
            else this.seenNow.delete(target);
          this.later();
        },
        { rootMargin: "48px" },
      );
      for (const e of [
        this.inspector.tree,
        this.inspector.body,
        this.lanesBox,
        this.ribbon.root,
        this.chart.root,
        this.ledger.root,
        this.figures.root,
      ])
        this.sight.observe(e);
    }
    get still() {
      return Boolean(this.calm?.matches);
    }

    /* ---- painting ---- */
    later() {
      if (!this.frame && !this.dead)
        this.frame = requestAnimationFrame((t) => {
          this.frame = 0;
          if (this.cur.mode === "play") SV.cursor.advance.call(this, t);
          this.paint();
          if (this.cur.mode === "play") this.later();
        });
    }
    /* What a run in flight brings is drawn ten times a second, or as often as painting may (see pace.js); what a person does,
       with the next frame. */
    soon() {
      const live = this.state === "live" && this.cur.mode === "follow",
        wait = live ? this.paintRate.beat(BEAT) - (performance.now() - this.painted) : 0;
      if (wait <= 0) this.later();
      else
        this.beat ??= setTimeout(() => {
          this.beat = null;
          this.later();
        }, wait);
    }
    paint() {
      this.painted = performance.now();
      if (this.state === "live") this.paintRate.begun(this.painted);
      if (!this.dead) {
        SV.paint.all(this);
        this.notifyListeners();
      }
    }
    /* Listeners are called once per painted frame, however many steps led to it. */
    on(name, f) {
      if (name !== "change" || typeof f !== "function") return () => {};
      this.listeners.add(f);
      return () => this.listeners.delete(f);
    }
    where() {
      return SV.api.where(this);
    }
    notifyListeners() {
      if (!this.listeners.size) return;
      const w = this.where(),
        key = JSON.stringify(w) + this.st.records + this.state + who(this.st);
      if (key === this.lastReported) return;
      this.lastReported = key;
      for (const f of this.listeners) {
        try {
          f(w);
        } catch (e) {
          setTimeout(() => {
            throw e;
          });
        }
      }
    }
    destroy() {
      this.dead = true;
      cancelAnimationFrame(this.frame);
      this.sized.disconnect();
      this.themed.disconnect();
      this.sight.disconnect();
      document.removeEventListener("keydown", this.onDocKey);
      this.root.removeEventListener("keydown", this.onKey);
      this.dark?.removeEventListener?.("change", this.onScheme);
      this.chart.stop();
      for (const part of [this.ribbon, this.inspector, this.ledger, this.transport, this.passes])
        clearTimeout(part.timer);
      clearTimeout(this.beat);
      this.root.replaceChildren();
    }
  }

  Object.assign(Board.prototype, SV.cursor, SV.intake, SV.answers.methods);
  SV.board = { Board };
  globalThis.SpecVizBoard = {
    mount(root, { frames, trace, options } = {}) {
      root.classList.add("sv");
      const board = /** @type {any} */ (new Board(root, options));
      const api = SV.api.make(board);
      if (trace) board.load(trace);
      if (frames) board.push(frames);
      return api;
    },
  };
})();
