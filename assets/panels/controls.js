/* Controls of a panel: the rail of its views, sliders, lists, fields, radio buttons. Each can be read, and set where
   that is needed. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText } = SpecViz.dom;
  const { say } = P.words;
  let count = 0;

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

  P.controls = { rail, slider, select, field, choice };
})();
