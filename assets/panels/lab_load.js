/* Lab: many users at once. Plain decoding and methods that share passes meet the same arrivals, load by load; what each one
   brings, and the load at which speculation stops paying. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el } = SpecViz.dom;
  const K = P.kit;
  const PLAIN = "autoregressive",
    FIXED = "speculative",
    TICKED = [FIXED, "smartspec", "tetris"],
    FAMILY = "Many requests";
  const LOADS = { users: "1, 2, 4, 8, 16", rates: "2, 4, 8, 16" };

  function load(env) {
    const cards = env.ctx.catalogue || [],
      names = new Map(cards.map((c) => [c.key, K.say(c.title, 60)])),
      store = P.savedAnswers("load"),
      tell = K.status(),
      out = el("div", { class: "pn-load" });
    let kind = "users",
      charts = [],
      control = null;

    const loads = K.field({ label: "Loads, at most six", value: LOADS.users, most: 60 });
    const how = K.choice(
      "Arrivals",
      [
        ["users", "Users at once"],
        ["rates", "Requests/s"],
      ],
      kind,
      (v) => {
        kind = v;
        loads.input.value = LOADS[v];
      },
    );
    /* The lanes that are chosen for the page come first, ticked; then what is made for many requests. */
    const field = el("fieldset", { class: "pn-ticks" });
    let ticks = [],
      touched = false;
    function offer() {
      const lanes = (env.ctx.chosen?.() ?? []).filter((key) => names.has(key) && key !== PLAIN),
        ticked = lanes.length ? lanes : TICKED,
        made = cards.filter((c) => c.key === FIXED || c.family === FAMILY).map((c) => c.key),
        offered = [...new Set([...lanes, ...made])].sort((a, b) => ticked.includes(b) - ticked.includes(a));
      if (touched || offered.join() + ticked.join() === field.dataset.of) return;
      field.dataset.of = offered.join() + ticked.join();
      ticks = offered.map((key) => {
        const input = el("input", {
          type: "checkbox",
          checked: ticked.includes(key),
          on: { change: () => (touched = true) },
        });
        return { key, input, root: el("label", { "data-key": key }, input, el("span", null, names.get(key))) };
      });
      field.replaceChildren(
        el("legend", null, lanes.length ? "Your lanes, beside plain decoding" : "Beside plain decoding"),
        ...ticks.map((t) => t.root),
      );
    }
    offer();
    const task = K.select({ label: "Tasks", options: [["", "all of the suite, in turn"]] });
    const requests = K.slider({ label: "Requests of each load", min: 8, max: 64, step: 8, value: 24, on() {} });
    const length = K.slider({
      label: "Longest answer",
      min: 8,
      max: 96,
      step: 8,
      value: 32,
      show: (v) => v + " tokens",
      on() {},
      help: "Lengths are drawn from half of this to it, the same for every method.",
    });
    const press = K.button("Measure", run, "primary"),
      stop = K.button("Stop", () => control?.abort());
    stop.disabled = true;
    const earlier = K.select({ label: "Kept in this browser", options: [], on: (i) => pick(store.read()[Number(i)]) });

    let asked = false;
    async function tasks() {
      if (asked || typeof env.ctx.ask !== "function") return;
      asked = true;
      const got = await Promise.resolve(env.ctx.ask("tasks", {})).catch(() => null);
      if (!Array.isArray(got)) return;
      for (const t of got.slice(0, 20))
        if (t && typeof t.task === "string")
          task.input.append(el("option", { value: t.task }, `${K.say(t.task, 40)} only`));
    }

    async function run() {
      const list = K.numbers(loads.value, 6);
      if (!list.length) {
        tell.set("Give at least one load.", "error");
        return;
      }
      control = new AbortController();
      stop.disabled = false;
      let last = null;
      const got = await K.request(
        env.ctx,
        "load",
        {
          [kind]: list,
          methods: [PLAIN, ...ticks.filter((t) => t.input.checked).map((t) => t.key)],
          tasks: task.value ? [task.value] : [],
          requests: requests.value,
          max_new_tokens: length.value,
        },
        {
          press,
          tell,
          signal: control.signal,
          busy: "Warming up\u2026",
          part: (p) => {
            if (!p || !Array.isArray(p.rows)) return;
            last = p;
            if (p.at) tell.set(where(p.at), "busy");
            show(p);
          },
        },
      );
      stop.disabled = true;
      const whole = got || (last && last.rows.length ? { ...last, at: undefined, stopped: true } : null);
      if (!whole) return;
      store.add(whole);
      shelf();
      show(whole);
    }
    const title = (key) => names.get(key) || K.say(key, 40);
    function where(at) {
      const n = K.finite(at.users)
        ? at.users + (at.users === 1 ? " user" : " users")
        : K.say(at.rate, 12) + " requests/s";
      return `${title(at.method)}, ${n}: ${K.say(at.done, 8)} of ${K.say(at.of, 8)} answered`;
    }

    function shelf() {
      const list = store.read();
      earlier.input.replaceChildren(
        ...list.map((x, i) => el("option", { value: String(i) }, new Date(x.at).toLocaleString("en-GB"))),
      );
      earlier.root.hidden = list.length < 2;
    }
    function pick(one) {
      if (one) show(one.answer, one.at);
    }

    function show(got, when) {
      const made = P.loads.answer(got, when, title);
      if (!made) return;
      for (const c of charts) c.stop();
      charts = made.charts;
      out.replaceChildren(...made.kids);
      for (const c of charts) c.paint();
    }

    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Under load",
        K.lead(
          "Many users share each pass, and a draft\u2019s rows no longer ride along for nothing: " +
            "find the load at which speculation stops paying here.",
        ),
      ),
      K.twoColumns(
        [
          how,
          loads.root,
          field,
          task.root,
          requests.root,
          length.root,
          el("div", { class: "pn-row" }, press, stop),
          tell.root,
          earlier.root,
        ],
        [out],
      ),
    );
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        el("b", null, SpecViz.messages.say("panel.empty")),
        "Every method meets the same requests, in turns of a quarter of a second. Press \u201cMeasure\u201d.",
      ),
    );
    shelf();
    pick(store.read()[0]);
    return {
      root,
      update() {
        offer();
        tasks();
      },
      destroy() {
        control?.abort();
        for (const c of charts) c.stop();
      },
    };
  }

  (P.views = P.views || {}).load = load;
})();
