/* The notice line: what is being looked at (live, recorded, simulated), on which machine, when; or what is under way. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText, setAttr } = SV.dom;
  const BADGE = { live: "Live", recorded: "Recorded", simulated: "Simulated" };
  const STATE = { loading: "Loading", queued: "Queued", error: "Error", stopped: "Stopped", cut: "Cut off" };
  const WAITS = ["loading", "queued"];

  const short = (s, n = 60) => {
    const t = String(s ?? "");
    return t.length > n ? t.slice(0, n - 1) + "\u2026" : t;
  };
  /* The target with its size, and what models.yaml says a reader must know of its answers; a trace of before it said anything:
     what is so small knows no facts. */
  const TOY = 1e8;
  function nature({ name, parameters: n, nature: own }) {
    const size =
        n >= 1e9
          ? (n / 1e9).toFixed(1) + " B"
          : n >= 1e6
            ? (n < 1e7 ? (n / 1e6).toFixed(1) : Math.round(n / 1e6)) + " M"
            : n
              ? (n / 1e3).toFixed(0) + " k"
              : "",
      warning = own ?? (n && n < TOY ? "a toy, its facts are unreliable" : "");
    return short(name, 32) + (size ? ", " + size + " parameters" : "") + (warning ? ": " + short(warning, 300) : "");
  }
  function when(iso) {
    const d = new Date(iso);
    return Number.isNaN(d.getTime())
      ? ""
      : d.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
  }
  function machine(h) {
    const e = h.env || {};
    return [e.machine, e.device && !String(e.machine || "").includes(e.device) ? e.device : "", e.dtype]
      .filter(Boolean)
      .map((x) => short(x, 48))
      .join(", ");
  }

  /* What the line says when no status text says something more pressing. */
  function sentence(h, state, race, mode, served) {
    const where = machine(h),
      apart = served ? SV.messages.say("notice.server.clock") : "",
      fair = (race ? " Methods took turns, each on its own clock." : "") + apart;
    if (state === "live")
      return (
        "Running now" +
        (where ? " on " + where : "") +
        "." +
        (race ? " Methods take turns, each on its own clock." : "") +
        apart
      );
    if (mode === "live")
      return (
        (state === "stopped" ? "Stopped; what was written is kept." : "Finished") +
        (state === "stopped" ? "" : where ? " on " + where + "." : ".") +
        fair
      );
    if (mode === "recorded")
      return "Recorded" + (where ? " on " + where : "") + (when(h.created) ? ", " + when(h.created) : "") + "." + fair;
    return "Hand-made trace. No model ran; the probabilities and times are invented." + fair;
  }

  /* A lane that copies this visitor's earlier answers is faster than its method: the notice says so. */
  function remembered(lanes) {
    return lanes
      .filter(SV.metrics.remembered)
      .map((lane) =>
        SV.messages.say("notice.remembered", {
          copied: String(SV.metrics.remembered(lane)),
          tokens: String(SV.fold.sumAt(lane, lane.committed).tokens),
          title: SV.stage.titleOf(lane),
        }),
      )
      .join(" ");
  }

  /* Whether a lane asks for the draft model; traces from before methods said what they need do not tell, so it is named. */
  const drafts = (lanes) =>
    lanes.some(({ header }) => {
      const needs = header?.method?.needs;
      return (
        header &&
        !SV.metrics.isBaseline({ header }) &&
        (!needs || needs.some((need) => /^(draft|middle|small)/.test(need)))
      );
    });

  class Notice {
    constructor() {
      this.word = el("span");
      this.badge = el("span", { class: "mode" }, el("i"), this.word);
      this.say = el("span", { class: "say", role: "status" });
      this.button = el("button", { type: "button", class: "again", hidden: true, on: { click: () => this.press() } });
      this.meta = el("p", { class: "meta" });
      this.facts = el(
        "button",
        { type: "button", class: "facts", "aria-expanded": "false", on: { click: () => this.unfold() } },
        SV.messages.say("notice.facts"),
      );
      this.about = el("p");
      this.more = el("div", { class: "pop", role: "note", hidden: true }, this.about, this.meta);
      this.root = el("div", { class: "notice" }, this.badge, this.say, this.button, this.facts, this.more);
      this.root.addEventListener("keydown", (e) => {
        if (e.key !== "Escape" || this.more.hidden) return;
        e.stopPropagation();
        this.unfold(false);
        this.facts.focus();
      });
      this.root.addEventListener("focusout", (e) => {
        const to = /** @type {Node | null} */ (e.relatedTarget);
        if (to && !this.root.contains(to)) this.unfold(false);
      });
    }
    /* Machine, turns and models, which a calm line keeps to itself. */
    unfold(open = this.more.hidden) {
      this.more.hidden = !open;
      this.facts.setAttribute("aria-expanded", String(open));
    }
    /* A live run that was saved and opened again is a recording of it. */
    paint({
      header,
      state,
      stale,
      text,
      race,
      lost,
      reopened,
      slow,
      served,
      remembered,
      drafts = true,
      scales,
      button,
    }) {
      const mode = !header ? "" : header.mode === "live" && reopened ? "recorded" : header.mode;
      const waits =
          Boolean(header) && WAITS.includes(state) /* the next run does: what stands here is still the last one */,
        last =
          Boolean(header) && stale && state === "stopped" /* who stopped a run before its first token is back at it */,
        over = mode === "live" && (waits || last || state === "done"),
        busy = (!waits && !last && STATE[state]) || (!header && "Ready") || (over && "Finished");
      const what = SV.messages.say(mode === "recorded" ? "notice.recording" : "notice.before");
      setText(this.word, busy || BADGE[mode] || "Trace");
      setAttr(this.badge, "data-mode", ["error", "cut"].includes(state) ? state : busy ? "busy" : mode);
      const gap = lost ? " Some updates were missed on the way; the end of the run brings them." : "";
      const own =
          text || (header ? sentence(header, state, race, mode, served) : "Press Run, or open a recorded trace."),
        calm = Boolean(header && !text && !waits && !stale && !gap),
        still = waits ? "notice.waits" : header && stale ? "notice.stays" : "";
      /* machine and turns are in the popover: beside a remark about the answer they would take a line of their own */
      setText(
        this.say,
        calm && remembered
          ? remembered
          : own + (still && SV.messages.say(still, { what })) + (remembered ? " " + remembered : "") + gap,
      );
      /* Machine and models are a press away; whatever a visitor must know stands in the line. */
      this.facts.hidden = !header;
      if (!header) this.unfold(false);
      setText(this.about, header ? [sentence(header, state, race, mode, served), slow].filter(Boolean).join(" ") : "");
      this.root.classList.toggle("calm", calm && !remembered);
      this.press = button?.press;
      this.button.hidden = !button;
      setText(this.button, button?.name ?? "");
      const t = header && header.target ? nature(header.target) : "",
        word = scales ? "notice.small" : "notice.draft",
        d = header?.draft && drafts ? SV.messages.say(word, { model: short(header.draft.name, 32) }) : "";
      setText(this.meta, t ? SV.messages.say("notice.target", { model: t }) + d : "");
    }
  }
  SV.notice = { Notice, WAITS, sentence, nature, machine, when, remembered, drafts };
})();
