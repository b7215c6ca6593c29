/* What every panel is made of: rails, controls, figures, tables, requests to the server. Built from SpecViz.dom, so text
   reaches the page only as text nodes. Nothing here knows what a panel shows. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText } = SpecViz.dom;
  let count = 0;

  /* A person reads: control and bidirectional characters of a trace, a catalogue or a server are named, never obeyed. */
  const say = (s, most = 2000) => SpecViz.text.joined(SpecViz.text.visible(String(s ?? ""))).slice(0, most);
  const clamp = (x, lo, hi) => Math.min(hi, Math.max(lo, x));
  const finite = (x) => typeof x === "number" && Number.isFinite(x);
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  const mean = (list) => (list.length ? sum(list) / list.length : null);
  function median(list) {
    if (!list.length) return null;
    const s = [...list].sort((a, b) => a - b),
      m = s.length >> 1;
    return s.length % 2 ? s[m] : (s[m - 1] + s[m]) / 2;
  }

  const button = (label, on, cls = "") =>
    el("button", { type: "button", class: "pn-btn " + cls, on: { click: on } }, label);
  const lead = (...kids) => el("p", { class: "pn-lead" }, kids);
  const small = (...kids) => el("p", { class: "pn-small" }, kids);
  const head = (title, ...kids) => el("div", { class: "pn-head" }, el("h2", null, title), kids);
  const box = (title, ...kids) =>
    el("section", { class: "pn-box", "aria-label": title }, title ? el("h3", null, title) : null, kids);

  /* The three-part rail of a panel: what there is, one line on each, the chosen one open beside it. Arrow keys walk it. */
  function rail(items, label, on) {
    const id = "pn" + ++count;
    const tabs = items.map((it) =>
      el(
        "button",
        {
          type: "button",
          role: "tab",
          id: `${id}-${it.key}`,
          "data-key": it.key,
          "aria-controls": id + "-body",
          "aria-selected": "false",
          tabindex: "-1",
          on: { click: () => pick(it.key) },
        },
        el("b", null, it.title),
        it.line ? el("span", null, it.line) : null,
      ),
    );
    const root = el(
      "div",
      { class: "pn-rail", role: "tablist", "aria-label": label, "aria-orientation": "vertical" },
      tabs,
    );
    const body = el("div", { class: "pn-body", role: "tabpanel", id: id + "-body", tabindex: "-1" });
    root.addEventListener("keydown", (e) => {
      const i = tabs.indexOf(e.target),
        n = tabs.length;
      const to = { ArrowDown: i + 1, ArrowRight: i + 1, ArrowUp: i - 1, ArrowLeft: i - 1, Home: 0, End: n - 1 }[e.key];
      if (i < 0 || to === undefined) return;
      e.preventDefault();
      e.stopPropagation();
      const next = tabs[(to + n) % n];
      next.focus();
      pick(next.dataset.key);
    });
    function pick(key, quiet) {
      for (const t of tabs) {
        const me = t.dataset.key === key;
        t.setAttribute("aria-selected", String(me));
        t.tabIndex = me ? 0 : -1;
        if (me) {
          body.setAttribute("aria-labelledby", t.id);
          if (root.scrollWidth > root.clientWidth) root.scrollTo({ left: t.offsetLeft - 16, behavior: "auto" });
        }
      }
      if (!quiet) on(key);
    }
    return { root, body, pick };
  }

  /* Labelled controls. `on` hears the value; the returned object can be read and set. */
  function slider({ label, min, max, step = 1, value, show = String, on, help }) {
    const id = "pn" + ++count,
      out = el("output", { for: id, class: "pn-out" }, show(value));
    const input = el("input", {
      type: "range",
      id,
      min,
      max,
      step,
      value,
      on: {
        input: () => {
          setText(out, show(Number(input.value)));
          on(Number(input.value));
        },
      },
    });
    const root = el(
      "div",
      { class: "pn-field" },
      el("label", { for: id }, label),
      out,
      input,
      help ? el("span", { class: "pn-help" }, help) : null,
    );
    return {
      root,
      input,
      set(v, lim) {
        if (lim !== undefined) input.max = lim;
        input.value = v;
        setText(out, show(Number(input.value)));
      },
      get value() {
        return Number(input.value);
      },
    };
  }
  function select({ label, options, value, on, help }) {
    const id = "pn" + ++count;
    const input = el(
      "select",
      { id, on: { change: () => on && on(input.value) } },
      options.map(([v, name]) => el("option", { value: v }, say(name, 90))),
    );
    if (value !== undefined && value !== null) input.value = value;
    const note = help ? el("span", { class: "pn-help" }, help) : null;
    return {
      root: el("div", { class: "pn-field" }, el("label", { for: id }, label), input, note),
      input,
      get value() {
        return input.value;
      },
    };
  }
  function field({ label, value = "", type = "text", lines, most = 4000, on, ...rest }) {
    const id = "pn" + ++count;
    const input = el(lines ? "textarea" : "input", {
      id,
      type: lines ? null : type,
      rows: lines || null,
      maxlength: most,
      on: { input: () => on && on(input.value) },
      ...rest,
    });
    input.value = value;
    return {
      root: el("div", { class: "pn-field" }, el("label", { for: id }, label), input),
      input,
      get value() {
        return input.value;
      },
    };
  }
  /* One of a few: real radio buttons in a row. */
  function choice(label, options, value, on) {
    const name = "pn" + ++count;
    const radios = options.map(([v, text]) => {
      const input = el("input", { type: "radio", name, value: v, checked: v === value, on: { change: () => on(v) } });
      return el("label", null, input, el("span", null, text));
    });
    return el("div", { class: "pn-seg", role: "radiogroup", "aria-label": label }, radios);
  }

  /* Large figures in a row: {label, value, unit, note}. */
  const figures = (list) =>
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
            el("dd", null, el("span", { class: "v" }, f.value), f.unit ? el("small", null, f.unit) : null),
            f.note ? el("dd", { class: "s" }, f.note) : null,
          ),
        ),
    );

  function table(cols, rows, caption) {
    return el(
      "div",
      { class: "pn-scroll", tabindex: "0", role: "region", "aria-label": caption },
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
     one sentence, never a stack. */
  async function request(ctx, name, payload, { press, tell, busy, part }) {
    if (typeof ctx.ask !== "function") {
      tell.set("This needs the running app: open specviz and try again.", "error");
      return null;
    }
    if (press) press.disabled = true;
    tell.set(busy || "Asking the server\u2026", "busy");
    const hear = (said) => {
      if (!said || typeof said !== "object") return;
      if (typeof said.text === "string") tell.set((said.state === "queued" ? "Waiting: " : "") + said.text, "busy");
      if (said.part && part) part(said.part);
    };
    try {
      const got = await ctx.ask(name, payload || {}, hear);
      if (got === null || got === undefined) throw new Error("The server gave no answer.");
      if (typeof got === "object" && typeof got.error === "string") throw new Error(got.error);
      tell.set("");
      return got;
    } catch (e) {
      tell.set(sentence(e), "error");
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

  P.kit = {
    say,
    clamp,
    finite,
    sum,
    mean,
    median,
    button,
    lead,
    small,
    head,
    box,
    rail,
    slider,
    select,
    field,
    choice,
    figures,
    table,
    status,
    request,
    sentence,
    badge,
    copy,
    EXACT,
  };
})();
