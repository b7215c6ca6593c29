/* Input of the board: live frames, an imported trace, the state of the run. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { setText, setAttr } = SV.dom;
  const F = SV.fold,
    M = SV.metrics;

  SV.intake = {
    /* ---- records in ---- */
    push(text) {
      for (const act of SV.frames.take(this.box, text)) {
        if (this.statusState === "cut") this.setStatus({}); /* it goes on: only the network was away */
        if (act.kind === "new") this.reset();
        else if (act.kind === "records") {
          this.add(act.e);
          this.followAnswer(act.e);
        } else if (act.kind === "snap") this.snap(act);
        else if (act.kind === "status") this.setStatus(act.status, act.stale);
      }
      this.updateState();
    },
    /* A text is an imported file: it is validated, and refused with a sentence. */
    open(trace) {
      if (typeof trace === "string") {
        const { records, why } = SV.reader.read(trace);
        if (why) {
          this.setStatus({ state: "error", text: why });
          this.updateState();
          return why;
        }
        trace = records;
      }
      this.load(trace);
      return "";
    },
    /* Show an empty board with one sentence. */
    clear(text) {
      this.reset();
      this.setStatus({ state: "idle", text });
      this.updateState();
    },
    load(records) {
      this.reset();
      this.add(records || []);
      this.reopened = true;
      this.updateState();
      this.begin();
    },
    add(records) {
      for (const rec of records) {
        const was = this.st.records;
        F.step(this.st, rec);
        if (this.st.records > was) this.records.push(rec);
      }
    },
    snap(act) {
      const was = this.st.records;
      if (act.mend) {
        this.st = F.initial();
        this.records = [];
        this.ui.sel = null;
      }
      this.add(act.e);
      if (was || !this.st.records) return;
      if (!this.isLive()) {
        this.updateState();
        this.begin();
      } else if (act.fresh) {
        this.reopened = true;
        this.edge(1);
      } /* an earlier run, opened again */
    },
    isLive() {
      const h = this.header();
      return Boolean(h && h.mode === "live");
    },
    header() {
      const all = this.list().filter((l) => l.header);
      return (all.find((l) => !SV.serverFacts.is(l)) || all[0])?.header ?? null;
    },
    /* In the order shown: the methods as they came, plain decoding last; of several answers (n), those of the one that is
       shown. */
    list() {
      const all = this.st.order
        .map((id) => this.st.lanes.get(id))
        .filter((l) => M.answerOf(l) === this.ui.answer || !l.header);
      return [...all.filter((l) => !M.isBaseline(l)), ...all.filter((l) => M.isBaseline(l))];
    },
    base() {
      return this.list().find(M.isBaseline) ?? null;
    },
    /* stale: the status is about a run that wrote nothing, while the board shows an earlier one. */
    setStatus(s, stale = false) {
      if (!s || typeof s !== "object") return;
      this.stale = stale;
      this.statusState = typeof s.state === "string" ? s.state : null;
      this.statusButton = typeof s.button?.press === "function" ? s.button : null;
      this.statusText = typeof s.text === "string" ? SV.text.joined(SV.text.visible(s.text)).slice(0, 400) : "";
    },
    updateState() {
      const lanes = this.list(),
        failed = lanes.find((l) => l.error);
      let s = lanes.length
        ? lanes.every((l) => l.done || l.error)
          ? lanes.some((l) => l.done && ["stopped", "deadline"].includes(l.done.finish))
            ? "stopped"
            : "done"
          : this.isLive()
            ? "live"
            : "done"
        : "idle";
      if (failed) {
        s = "error";
        if (!this.statusText)
          this.statusText = SV.text
            .joined(SV.text.visible(String(failed.error.why || "This method failed.")))
            .slice(0, 300);
      }
      this.setState(this.statusState || s);
      for (const [k, n] of [
        ["seq", this.box.last],
        ["lost", this.box.lost],
        ["gaps", this.box.gaps],
        ["records", this.st.records],
      ])
        setAttr(this.root, "data-" + k, n);
      this.soon();
    },
    setState(s) {
      if (s === this.state && s === this.root.dataset.state) return;
      this.state = s;
      this.root.dataset.state = s;
      const lanes = this.list(),
        over = ["done", "stopped"].includes(s) && lanes.some((l) => l.header && l.header.mode !== "recorded");
      /* Only a run that somebody waited for has ended: not a recording, and not the one before this. */
      setText(
        this.announce,
        s === "error"
          ? this.statusText
          : !over
            ? ""
            : "The run has ended. " +
              lanes
                .map((l) => SV.stage.titleOf(l) + ": " + SV.dom.count(F.sumAt(l, l.committed).tokens, "token"))
                .join(", "),
      );
    },
    /* A finished trace begins at its beginning, moving; with reduced motion it rests on its last round. */
    begin() {
      if (!this.list().some((l) => l.committed)) return;
      if (this.still || this.options.autoplay === false) {
        this.cur.mode = "hold";
        this.edge(1);
      } else {
        this.edge(0);
        this.play();
      }
    },
  };
})();
