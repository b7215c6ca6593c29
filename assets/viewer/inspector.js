/* The round inspector: one plain sentence, the draft tree, and the tabs that say why. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText, setAttr, count, who, enlarge } = SV.dom;

  const { sentence, defaultSel } = SV.round;

  const STEPS = [
    ["Draft", "The small model guesses a few tokens ahead."],
    ["Verify", "The large model reads all guesses in one pass."],
    ["Judge", "Each guess is kept or rejected, in order."],
    ["Commit", "What was kept is written, and one token of the large model's own."],
  ];

  class Inspector {
    constructor(board) {
      this.board = board;
      this.title = el("h2");
      this.say = el("p", { class: "sum", "aria-live": "off" });
      this.steps = el(
        "div",
        { class: "steps", role: "group", "aria-label": "Steps of the round" },
        STEPS.map(([t, what], i) => el("button", { "data-step": i + 1, "aria-pressed": "false", title: what }, t)),
      );
      this.tree = el("div", {
        class: "treebox",
        tabindex: 0,
        role: "group",
        "aria-label": "Draft of the round; up and down walk its tokens",
      });
      this.zoom = new SV.zoom.Zoom(this.tree, () => {
        this.every = !this.every;
        this.keys.tree = null;
        board.later();
      });
      this.tabs = el("div", { class: "sub", role: "tablist", "aria-label": "Details of the round" });
      this.body = el("div", { class: "body", role: "tabpanel", "aria-label": "Details" });
      this.head = el("div", { class: "phead" }, this.title, this.say);
      this.root = el(
        "section",
        { class: "panel p-insp", "aria-label": "Round inspector" },
        this.head,
        this.steps,
        (this.reason = el("p", { class: "reason" })),
        el("div", { class: "treewrap" }, this.tree, this.zoom.keys),
        this.tabs,
        this.body,
      );
      this.root.addEventListener("click", (e) => this.clicked(e));
      this.tabs.addEventListener("keydown", (e) => this.arrow(e));
      this.tab = "token";
      this.chosen = false; /* until somebody asks for another tab: Probabilities when sampling, else the sentence */
      this.every = false;
      this.filled = new Set();
      this.keys = {};
      this.last = 0;
      this.timer = null;
    }
    clicked(e) {
      const step = e.target.closest("[data-step]"),
        tab = e.target.closest("[data-tab]"),
        node = e.target.closest("[data-node]"),
        row = e.target.closest("tr[data-round]"); /* the board itself carries data-round, too */
      if (step && this.v && this.v.round) this.board.goto(this.v.round.i, Number(step.dataset.step));
      else if (tab) {
        this.show(tab.dataset.tab);
      } else if (row) this.board.goto(Number(row.dataset.round), 4);
      else if (node && this.v && this.v.round && !node.closest("[data-of]"))
        this.board.ask(
          this.v.lane.id,
          this.v.round.i,
          node.dataset.node === "tail" ? "tail" : Number(node.dataset.node),
          true,
        );
    }
    arrow(e) {
      if (e.key !== "ArrowLeft" && e.key !== "ArrowRight") return;
      const all = [...this.tabs.children],
        i = all.indexOf(document.activeElement);
      if (i < 0) return;
      e.preventDefault();
      e.stopPropagation();
      const next = all[(i + (e.key === "ArrowRight" ? 1 : all.length - 1)) % all.length];
      this.show(next.dataset.tab);
      this.board.paint();
      this.tabs.querySelector('[aria-selected="true"]').focus();
    }
    show(tab) {
      this.tab = tab;
      this.chosen = true;
      this.keys.tabs = null;
      this.board.later();
    }
    /* A row of the mask under the pointer is described in words below it. */
    hovered(node) {
      const said = this.tab === "mask" && this.v && this.v.round ? this.body.querySelector(".said") : null;
      if (said && said.now !== node) {
        said.now = node;
        said.replaceChildren(
          ...[SV.mask.what(this.v, typeof (node ?? this.v.sel) === "number" ? (node ?? this.v.sel) : null)].flat(),
        );
      }
    }

    /* v: {lane, round, phase, rested, k, sel, narrow, width, race, theme, seen}; rested: the rounds after this one drafted
       nothing; seen: what is on the screen of a run in flight, else null */
    paint(v) {
      /* A run in flight changes rounds faster than anybody reads: five a second are drawn, under a race half as many. */
      const rest = v.race ? 380 : 190;
      if (v.live && performance.now() - this.last < rest) {
        this.timer ??= setTimeout(() => {
          this.timer = null;
          this.board.soon();
        }, rest);
        return;
      }
      this.last = performance.now();
      this.v = v;
      const r = v.round;
      if (!this.chosen && v.lane) this.tab = v.race || SV.why.temperature(v.lane) > 0 ? "why" : "token";
      if (!v.race && SV.folding.calm(this.board))
        this.tab = "token"; /* the sentence alone; numbers wait behind their key */
      if (r) v.sel = v.sel ?? defaultSel(r, v.phase);
      setText(
        this.title,
        r
          ? (v.race ? SV.stage.titleOf(v.lane) + ", " : "") +
              (SV.serverFacts.is(v.lane) ? "message " : "round ").replace(/^./, (c) => (v.race ? c : c.toUpperCase())) +
              (r.i + 1) +
              (v.race ? "" : " of " + Math.max(v.lane.committed, r.i + 1))
          : "Round inspector",
      );
      this.steps.hidden = v.race || !r || !r.nodes.length;
      for (const b of this.steps.children) {
        setAttr(b, "aria-pressed", String(Number(b.dataset.step) === v.phase));
        b.classList.toggle("past", Number(b.dataset.step) < v.phase);
      }
      setText(
        this.say,
        r
          ? sentence(v.lane, r, v.phase) + (v.rested ? SV.messages.say("round.last_draft") : "")
          : "When the run begins, each round's guesses and verdicts appear here.",
      );
      this.paintReason(v);
      const key = [
        who(v.lane),
        r && r.i,
        r && r.nodes.length,
        r && r.judges.size,
        r && Boolean(r.commit),
        v.phase,
        v.sel,
        v.narrow,
        v.width,
        v.race,
      ].join();
      if (key !== this.keys.tree && this.inSight(this.tree)) {
        this.keys.tree = key;
        this.paintTree(v);
      }
      this.paintTabs(v);
      const bodyKey = key + this.tab + "|" + (this.tab === "log" ? v.k : this.tab === "lens" ? v.theme : "");
      if (bodyKey !== this.keys.body && this.inSight(this.body)) {
        this.keys.body = bodyKey;
        this.paintBody(v);
      }
    }
    /* The chosen token's whole reason in one line, in sight without scrolling: token, verdict, and the numbers behind it. */
    paintReason(v) {
      const found =
          v.round && v.phase >= 3 && !SV.serverFacts.is(v.lane)
            ? SV.why.explain(v.lane, v.round, v.sel, v.phase)
            : null,
        line = found ? SV.why.numbers(v.lane, v.round, found.node) : [],
        key = found ? [who(v.lane), v.round.i, found.node, found.cls, v.phase].join() : "";
      if (key === this.keys.reason) return;
      this.keys.reason = key;
      this.reason.replaceChildren(
        ...(found
          ? [
              el("bdi", { class: "mono w " + found.cls }, SV.fold.label(v.lane, found.tok, 18)),
              el("b", null, SV.why.TAGS[found.cls]),
              ...line.map(([id, x]) => el("span", { "data-message": id }, SV.messages.say(id, x))),
            ]
          : []),
      );
    }
    /* What stands blank has no size by which it could be seen. */
    inSight(part) {
      return !this.v.seen || this.v.seen.has(part) || !this.filled.has(part);
    }
    fill(part, round) {
      if (round) this.filled.add(part);
      else this.filled.delete(part);
    }
    paintTree(v) {
      const r = v.round;
      this.fill(this.tree, r);
      const probes = r ? r.nodes.filter((n) => n.probe).length : 0;
      if (!r || r.nodes.length === probes) {
        const why = !r
          ? ""
          : SV.serverFacts.is(v.lane)
            ? "What the server drafted here, and which of it was rejected, it does not tell: unknown, so nothing is drawn."
            : SV.metrics.isBaseline(v.lane) && !SV.output.of(v.lane).grids
              ? "Plain decoding drafts nothing: one target pass gives one token. The other methods guess several " +
                "tokens and let one pass check them all."
              : probes
                ? "Nothing was drafted this round. The same target pass scored " +
                  count(probes, "probe token") +
                  ", which can never be accepted; what they say is kept for later guesses."
                : SV.output.of(v.lane).grids
                  ? "Nothing is drafted here: one pass gives all patches of a scale."
                  : "There is no draft to draw this round: the target wrote one token by itself.";
        this.tree.replaceChildren(el("p", { class: "empty" }, why));
        this.zoom.keys.hidden = true;
        return;
      }
      const W = Math.max(240, (v.race && !v.mid ? v.width / 2 : v.width) - 28);
      const H = v.race ? 444 : this.board.wide ? 306 : 216;
      v.every = this.every;
      const tree = r.kind === "tree" && !v.narrow,
        fresh = this.keys.round !== r || this.keys.every !== this.every || this.keys.size !== W;
      const big = this.board.big,
        drawn = v.narrow
          ? SV.tree.drawList(v)
          : enlarge(tree ? SV.tree.drawTree(v, W / big, H / big) : SV.tree.drawChain(v, W / big), big);
      Object.assign(this.keys, { round: r, every: this.every, size: W });
      this.tree.replaceChildren(drawn);
      this.zoom.keys.hidden = !tree;
      if (tree) this.zoom.take(drawn, { many: r.nodes.length - probes, drawn: drawn.drawn, every: this.every, fresh });
      const sel = this.tree.querySelector(".sel");
      if (
        sel &&
        !v.narrow &&
        (Number(drawn.getAttribute("width")) > W + 4 || Number(drawn.getAttribute("height")) > H + 4)
      )
        this.reveal(sel);
    }
    /* Scrolls the tree's own box, never the page. */
    reveal(node) {
      const b = this.tree.getBoundingClientRect(),
        r = node.getBoundingClientRect();
      if (r.right > b.right - 16) this.tree.scrollLeft += r.right - b.right + 80;
      if (r.bottom > b.bottom - 16) this.tree.scrollTop += r.bottom - b.bottom + 80;
      else if (r.top < b.top) this.tree.scrollTop += r.top - b.top - 40;
      if (r.left < b.left) this.tree.scrollLeft += r.left - b.left - 40;
    }
    paintTabs(v) {
      const list = [
        ["token", "Why"],
        ["why", "Probabilities"],
        ["mask", "Mask and cache"],
        ["log", "Log"],
      ];
      if (v.lane && SV.lens.any(v)) list.push(["lens", "Lens"]);
      if (!list.some(([id]) => id === this.tab)) this.tab = "token";
      const key = this.tab + list.length;
      if (key === this.keys.tabs) return;
      this.keys.tabs = key;
      this.tabs.replaceChildren(
        ...list.map(([id, t]) =>
          el(
            "button",
            {
              role: "tab",
              "data-tab": id,
              tabindex: id === this.tab ? 0 : -1,
              "aria-selected": String(id === this.tab),
            },
            t,
          ),
        ),
      );
    }
    paintBody(v) {
      v.inner =
        ((v.race && !v.mid ? v.width / 2 : v.width) - (v.narrow ? 34 : 42)) /
        this.board.big; /* asking the page would cost a layout */
      const draw = { token: SV.why.draw, why: SV.card.draw, mask: SV.mask.draw, log: SV.log.log, lens: SV.lens.draw }[
        this.tab
      ];
      const note = v.round && ["token", "why"].includes(this.tab) ? SV.why.greedyNote(v) : null;
      const grammar = v.round && ["token", "why"].includes(this.tab) ? SV.grammarView.draw(v) : null;
      this.fill(this.body, v.round);
      this.body.replaceChildren(
        v.round ? draw(v, this.board) : el("div", { class: "short" }),
        ...[grammar, note].filter(Boolean),
      );
      for (const drawn of this.body.querySelectorAll("svg.lplot, svg.mask")) enlarge(drawn, this.board.big);
    }
  }

  SV.inspector = { Inspector, sentence, defaultSel };
})();
