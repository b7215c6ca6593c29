/* SpecVizPanels.mount(root, kind, ctx) -> {update(), destroy(), show(view)}: the tabs Lab, Learn and Traces.

   Files of this folder stand after the viewer's, each after those whose names it reads; panels.css goes after viewer.css.
   ctx = {board, catalogue, ask(name, payload, onUpdate, signal) -> Promise, run({prompt, methods, knobs, ...}), go(tab),
   link(set), opened(name)}: all may be absent, then what needs them says so in a sentence. onUpdate receives
   {state, text?, part?} on the way; an AbortSignal ends the question. link(set) gives an address of the page with this
   choice and the place on the board.
   board: the api at the top of viewer/board.js. catalogue: the methods' cards, [{key, title, paper, family, summary,
   exactness, knobs: [{name, default, low, high, help, choices}], needs, look, wins, loses}].
   ask's names: unavailable, cost_curve, context_costs, distribution, mistakes, break_it, sweep, load, tasks, scaling,
   library, library_trace. An answer that cannot be given is a rejected promise whose message is one sentence, or
   {error: sentence}.
   A panel draws only while it is in sight; the board's changes reach it at most four times a second. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el } = SpecViz.dom;
  const K = P.kit,
    EVERY = 250;

  P.mount = function mount(host, kind, ctx) {
    const panel = P.kinds[kind];
    P.history.watch(ctx && ctx.board);
    if (!panel) return { update() {}, destroy() {}, show() {} }; /* a tab whose whole content is the board */
    return new Panel(host, panel, kind, ctx || {});
  };

  class Panel {
    constructor(host, panel, kind, ctx) {
      this.ctx = ctx;
      this.root = el("div", { class: "sv svp", "data-panel": kind });
      this.items = panel.items;
      this.last = new Map(); /* question: the view that answered it last */
      this.rail = K.rail(panel.items, panel.label, (key) => this.show(this.last.get(key) ?? key));
      SpecViz.colours.applyPalette(this.root);
      this.root.append(el("div", { class: "pn-panel" }, this.rail.root, this.rail.body));
      host.replaceChildren(this.root);
      this.host = host;
      this.views = new Map();
      this.env = environment(ctx, this);
      this.sized = new ResizeObserver(() => {
        this.measure();
        if (this.dirty && this.seen()) this.update();
      });
      this.sized.observe(this.root);
      this.off = ctx.board && typeof ctx.board.on === "function" ? ctx.board.on("change", () => this.soon()) : null;
      /* Another panel, or a lesson, may ask this one to show a view. */
      this.asked = (e) => {
        if (e.detail && e.detail.kind === kind) this.show(e.detail.view);
      };
      document.addEventListener("specviz:show", this.asked);
      this.measure();
      this.show(panel.items[0].key);
    }
    measure() {
      const w = this.root.clientWidth;
      if (!w) return;
      this.root.classList.toggle("narrow", w <= 640);
      this.root.classList.toggle("mid", w <= 980);
      this.root.classList.toggle("wide", w >= 1560);
    }
    seen() {
      return this.root.isConnected && this.root.clientWidth > 0;
    }
    soon() {
      this.dirty = true;
      if (!this.timer)
        this.timer = setTimeout(() => {
          this.timer = 0;
          if (this.seen()) this.update();
        }, EVERY);
    }
    /* key: of a view, or of an entry with several ways to answer it. */
    show(key) {
      key = this.items.find((it) => it.key === key)?.ways?.[0].key ?? key;
      if (!P.views[key]) return;
      const question = this.items.find((it) => it.ways?.some((way) => way.key === key));
      if (question) this.last.set(question.key, key);
      if (!this.views.has(key)) this.views.set(key, P.views[key](this.env));
      this.key = key;
      this.rail.pick(question?.key ?? key, true);
      this.root.dataset.view = key;
      this.rail.body.replaceChildren(...(question ? [this.waysRow(question, key)] : []), this.views.get(key).root);
      this.update();
    }
    /* The ways to answer a question, as buttons in a row: the open one is pressed. */
    waysRow({ title, ways }, key) {
      return el(
        "div",
        { class: "pn-ways", role: "group", "aria-label": title },
        ways.map((way) =>
          el(
            "button",
            {
              type: "button",
              "data-key": way.key,
              "aria-pressed": String(way.key === key),
              title: way.line,
              on: {
                click: () => {
                  this.show(way.key);
                  this.rail.body.querySelector(`.pn-ways [data-key="${way.key}"]`)?.focus();
                },
              },
            },
            way.title,
          ),
        ),
      );
    }
    view() {
      return this.views.get(this.key);
    }
    update() {
      if (this.dead) return;
      if (!this.seen()) {
        this.dirty = true;
        return;
      }
      this.dirty = false;
      this.view().update();
    }
    destroy() {
      this.dead = true;
      clearTimeout(this.timer);
      this.sized.disconnect();
      document.removeEventListener("specviz:show", this.asked);
      if (typeof this.off === "function") this.off();
      for (const v of this.views.values()) v.destroy?.();
      this.root.remove();
    }
  }

  /* What a view may know: the trace as lanes, where the board stands, and a few sentences that many of them need. */
  function environment(ctx, panel) {
    const records = () => {
      try {
        return ctx.board?.trace?.() || [];
      } catch {
        return [];
      }
    };
    const where = () => {
      try {
        return ctx.board?.where?.() || {};
      } catch {
        return {};
      }
    };
    const lanes = () => P.traceLanes.lanes(records());
    let off = null;
    function laneName(l) {
      const all = lanes().filter((x) => !x.baseline && x.rounds.some((r) => r.nodes.length)),
        how = l.mode === "live" ? "run on " : l.mode === "simulated" ? "simulated for " : "recorded on ",
        label = `${K.say(l.title, 80)}, ${l.tokens} tokens` + (l.machine ? ", " + how + K.say(l.machine, 90) : "");
      if (all.length < 2)
        return el("p", { class: "pn-from" }, el("span", null, "From the board: "), el("b", null, label));
      const pick = K.select({
        label: "From the board",
        options: all.map((x) => [String(x.id), x.title + " \u00b7 " + x.tokens + " tokens"]),
        value: String(l.id),
        on: (v) => {
          ctx.board?.goto?.({ lane: Number(v) });
          env.chosen = Number(v);
          panel.update();
        },
      });
      pick.root.classList.add("pn-lanepick");
      return pick.root;
    }
    const env = {
      /* What cannot run on the models that are there, {method: why}: asked once; nothing where nobody can tell. */
      off: () =>
        (off =
          off ||
          Promise.resolve(typeof ctx.ask === "function" ? ctx.ask("unavailable", {}) : {}).then(
            (got) => (got && typeof got === "object" ? got : {}),
            () => {
              off = null;
              return {};
            },
          )),
      ctx,
      panel,
      records,
      lanes,
      source: () => SpecViz.save.source(records().filter((r) => r.type === "header")),
      where,
      lane: () => P.traceLanes.focus(lanes(), where()),
      go(tab) {
        ctx.go?.(tab);
      },
      /* Show a round on the board: the tab where it is, then the round itself. */
      show(to, tab = "watch") {
        ctx.go?.(tab);
        ctx.board?.goto?.(to);
      },
      /* Which lane the figures are of, and whether its times count. */
      laneLine(l) {
        const line = laneName(l);
        return l.doubt ? el("div", null, line, el("p", { class: "pn-doubt" }, SpecViz.messages.say(l.doubt))) : line;
      },
      empty(title, text) {
        return el(
          "div",
          { class: "pn-idle" },
          title ? el("b", null, title) : null,
          text,
          el(
            "div",
            { class: "pn-row" },
            K.button("Open a recording", () => ctx.go?.("traces")),
            K.button("Run something", () => ctx.go?.("watch")),
          ),
        );
      },
    };
    env.lane = () => P.traceLanes.focus(lanes(), env.chosen !== undefined ? { lane: env.chosen } : where());
    return env;
  }
})();
