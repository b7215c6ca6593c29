/* What every panel is made of: rails, controls, figures, tables, requests to the server. Built from SpecViz.dom, so text
   reaches the page only as text nodes. Nothing here knows what a panel shows. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText } = SpecViz.dom;
  const { say } = P.words;

  const button = (label, on, cls = "") =>
    el("button", { type: "button", class: "pn-btn " + cls, on: { click: on } }, label);
  const lead = (...kids) => el("p", { class: "pn-lead" }, kids);
  const small = (...kids) => el("p", { class: "pn-small" }, kids);
  const head = (title, ...kids) => el("div", { class: "pn-head" }, el("h2", null, title), kids);
  const box = (title, ...kids) =>
    el("section", { class: "pn-box", "aria-label": title }, title ? el("h3", null, title) : null, kids);
  /* Controls on the left, what they show on the right. */
  const twoColumns = (controls, result) =>
    el(
      "div",
      { class: "pn-two" },
      el("div", { class: "pn-box pn-controls" }, controls),
      el("div", { class: "pn-box" }, result),
    );

  /* In place of a speed that is not named. */
  const unnamed = () => el("span", { class: "unnamed" }, "\u2013");
  /* Large figures in a row: {label, value, unit, note}; doubt: a message, where no speed is named: figures with `timed` are
     then a dash. */
  const figures = (list, doubt = "") =>
    el(
      "dl",
      { class: "pn-figs" },
      list
        .filter(Boolean)
        .map((f) =>
          el(
            "div",
            { class: f.strong ? "strong" : "" },
            el("dt", null, f.label),
            el(
              "dd",
              null,
              el("span", { class: "v" }, doubt && f.timed ? unnamed() : f.value),
              f.unit ? el("small", null, f.unit) : null,
            ),
            f.note ? el("dd", { class: "s" }, f.note) : null,
          ),
        ),
    );

  /* A table as comma-separated values. */
  const cell = (x) => (x && x.nodeType ? x.textContent : x);
  const csv = (cols, rows) =>
    SpecViz.csv.lines(SpecViz.csv.bare([cols.map((c) => c.name ?? c), ...rows.map((r) => r.map(cell))]));

  function table(cols, rows, caption) {
    const done = el("span", { class: "pn-small", role: "status" }),
      key = button(
        "Copy as CSV",
        () => copy(csv(cols, rows), { set: (text) => setText(done, text) }),
        "quietly pn-csv",
      );
    return el(
      "div",
      { class: "pn-scroll", tabindex: "0", role: "region", "aria-label": caption },
      el("div", { class: "pn-row" }, key, done),
      el(
        "table",
        { class: "pn-table" },
        el("caption", null, caption),
        el(
          "thead",
          null,
          el(
            "tr",
            null,
            cols.map((c) => el("th", { scope: "col", class: c.num ? "num" : "" }, c.name ?? c)),
          ),
        ),
        el(
          "tbody",
          null,
          rows.map((r) =>
            el(
              "tr",
              null,
              r.map((x, i) => el(i ? "td" : "th", { scope: i ? null : "row", class: cols[i].num ? "num" : "" }, x)),
            ),
          ),
        ),
      ),
    );
  }

  /* A line that says what is going on: nothing, busy, a refusal. One at a time, and a screen reader hears it. */
  function status() {
    const root = el("p", { class: "pn-status", role: "status" });
    return {
      root,
      set(text, kind = "") {
        root.dataset.kind = kind;
        setText(root, text ? say(text, 400) : "");
      },
    };
  }

  /* Asks the server. The button rests meanwhile, the status tells, a growing answer is handed on as it comes, and an error is
     one sentence, never a stack. `signal` ends the question; then nothing more is handed on. */
  async function request(ctx, name, payload, { press, tell, busy, part, signal }) {
    if (typeof ctx.ask !== "function") {
      tell.set("This needs the running app: open specviz and try again.", "error");
      return null;
    }
    if (press) press.disabled = true;
    tell.set(busy || "Asking the server\u2026", "busy");
    const onUpdate = (update) => {
      if (!update || typeof update !== "object" || signal?.aborted) return;
      if (typeof update.text === "string")
        tell.set((update.state === "queued" ? "Waiting: " : "") + update.text, "busy");
      else if (update.part) tell.set(busy || "Measuring\u2026", "busy"); /* no longer loading or waiting */
      if (update.part && part) part(update.part);
    };
    try {
      const got = await ctx.ask(name, payload || {}, onUpdate, signal);
      if (got === null || got === undefined) throw new Error("No answer came; the time for one question may be over.");
      if (typeof got === "object" && typeof got.error === "string") throw new Error(got.error);
      tell.set("");
      return got;
    } catch (e) {
      if (signal?.aborted) tell.set("Stopped.");
      else tell.set(sentence(e), "error");
      return null;
    } finally {
      if (press) press.disabled = false;
    }
  }
  function sentence(e) {
    const s = say((e && (e.message || e)) || "", 300)
      .split("\n")[0]
      .trim();
    return s && s !== "[object Object]" ? s : "That did not work. Nothing else is affected; try again in a moment.";
  }

  const EXACT = {
    exact: "Same output as the target",
    "greedy only": "Exact for greedy decoding",
    approximate: "May change the output",
    simulated: "Simulated",
  };
  const badge = (exactness) =>
    el(
      "span",
      { class: "pn-badge", "data-exact": String(exactness).replace(/\s/g, "-").slice(0, 20) },
      EXACT[exactness] || say(exactness, 40),
    );

  async function copy(text, tell) {
    try {
      await navigator.clipboard.writeText(text);
      tell.set("Copied.");
    } catch {
      tell.set("The browser did not allow copying; select the text instead.", "error");
    }
  }

  /* A text with its arXiv numbers as links that only a person's click follows. */
  function paper(text) {
    const out = [],
      s = say(text, 600);
    let at = 0;
    for (const m of s.matchAll(/\b(\d{4}\.\d{4,5})\b/g)) {
      out.push(
        s.slice(at, m.index),
        el("a", { href: "https://arxiv.org/abs/" + m[1], target: "_blank", rel: "noopener noreferrer" }, m[1]),
      );
      at = m.index + m[0].length;
    }
    return [...out, s.slice(at)];
  }

  /* What a round of a method looks like, where the page has a drawing of it. */
  function drawing(key) {
    const { drawn, says } = globalThis.SpecVizPage?.drawing?.(key) ?? {};
    return drawn ? el("p", { class: "pn-drawing pn-small" }, drawn, says) : null;
  }

  P.kit = {
    unnamed,
    drawing,
    ...P.words,
    ...P.controls,
    button,
    lead,
    small,
    head,
    box,
    twoColumns,
    figures,
    table,
    csv,
    status,
    request,
    sentence,
    badge,
    copy,
    paper,
    EXACT,
  };
})();
