/* Lab: a set of one's own prompts, pasted or from a file, raced as one: every method on every prompt beside plain decoding, the
   median over the prompts with its interval, and each run. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, rate, times, count } = SpecViz.dom;
  const K = P.kit;
  const PLAIN = "autoregressive",
    USUAL = ["speculative", "prompt_lookup"],
    MOST = 24,
    METHODS = 5,
    SEEDS = 5,
    LETTERS = 4000,
    FILE = 200_000;
  const TEXTS = {
    "prompts.lead":
      "Paste your prompts, one a line, or open a file. Each method runs once on each prompt, in " +
      "shuffled order with plain decoding.",
    "prompts.help":
      "One prompt a line. A file: text with a prompt a line, or JSON Lines with a field \u201cprompt\u201d.",
    "prompts.none": "Give at least one prompt.",
    "prompts.file": "This file holds no prompts: text, or JSON Lines with a field \u201cprompt\u201d.",
    "prompts.left": "{done} of {of} prompts and draws were measured before the time for one question was over.",
    "prompts.knobs": "Its knobs, like \u201cgamma=2\u201d",
    "prompts.repeat":
      "This repeats it with {file} beside you, and writes the trace of each run to a folder \u201ctraces\u201d:",
    "prompts.stopped": "Stopped: what was measured is kept.",
    "prompts.best": "{title} is the fastest: its interval lies above all others.",
    "prompts.level": "No method is clearly the fastest: the intervals overlap.",
    "prompts.doubt": "The methods stand by tokens a pass, since times are in doubt.",
  };

  /* Prompts of a text: JSON Lines where the first line is an object, else a prompt a line. */
  function read(text) {
    const lines = text.split(/\r?\n/).filter((line) => line.trim());
    if (!lines[0]?.trim().startsWith("{")) return lines;
    return lines.flatMap((line) => {
      try {
        const { prompt } = JSON.parse(line);
        return typeof prompt === "string" && prompt.trim() ? [prompt] : [];
      } catch {
        return [];
      }
    });
  }
  const chosen = (env) => env.ctx.chosen?.().filter((key) => key !== PLAIN) ?? [];

  function view(env) {
    const cards = (env.ctx.catalogue || []).filter((c) => c.key !== PLAIN),
      names = new Set((env.ctx.catalogue || []).map((c) => c.key)),
      tell = K.status(),
      out = el("div"),
      text = K.field({ label: "Prompts", lines: 8, most: 60_000 }),
      length = K.slider({ label: "Tokens an answer", min: 16, max: 128, step: 16, value: 48, on() {} });
    const temperature = K.slider({ label: "Temperature", min: 0, max: 1.5, step: 0.1, value: 0, on() {} }),
      seeds = K.slider({
        label: "Draws of each prompt",
        min: 1,
        max: SEEDS,
        value: 1,
        on() {},
        help: "Sampled answers only.",
      }),
      seed = K.field({ label: "Seed", value: "0", most: 9 });
    let list = [],
      control = null,
      touched = false,
      earlier = [],
      traces = [];
    const picks = Array.from({ length: METHODS }, (_, i) =>
      K.select({
        label: i ? `Method ${i + 1}` : "Method",
        options: [["", "none"], ...cards.map((c) => [c.key, c.title])],
        on: () => (touched = true),
      }),
    );
    const knobs = picks.map(() => K.field({ label: TEXTS["prompts.knobs"], value: "", most: 100 }));
    const file = el("input", {
      type: "file",
      accept: ".txt,.jsonl,.json,text/plain",
      "aria-label": "Open a file of prompts",
      on: { change: open },
    });
    const press = K.button("Race them", () => run(0), "primary"),
      stop = K.button("Stop", () => control?.abort());
    stop.disabled = true;

    async function open() {
      const found = file.files[0] && file.files[0].size <= FILE ? read(await file.files[0].text()) : [];
      if (!found.length) return tell.set(TEXTS["prompts.file"], "error");
      list = found.slice(0, MOST).map((p) => p.slice(0, LETTERS));
      text.input.value = list.map((p) => p.replace(/\s*\n\s*/g, " ")).join("\n");
      tell.set(`${count(list.length, "prompt")} of ${found.length} taken.`);
    }
    /* A method, or {method, knobs} where knobs were typed: "gamma=2, tree_width=3". */
    function lane(key, typed) {
      const pairs = typed
        .split(/[,;\s]+/)
        .map((part) => part.split("="))
        .filter(([name, value]) => name && value);
      const read = (value) => (value.trim() !== "" && K.finite(Number(value)) ? Number(value) : value);
      const given = Object.fromEntries(pairs.map(([name, value]) => [name, read(value)]));
      return pairs.length ? { method: key, knobs: given } : key;
    }
    /* begun: how many prompts and draws were measured before; the rest is asked for. */
    async function run(begun) {
      const typed = read(text.value);
      /* a file's prompts keep their line breaks as long as nobody edits them */
      const prompts = (
        list.length && text.value === list.map((p) => p.replace(/\s*\n\s*/g, " ")).join("\n") ? list : typed
      )
        .slice(0, MOST)
        .map((p) => p.slice(0, LETTERS));
      if (!prompts.length) return tell.set(TEXTS["prompts.none"], "error");
      control = new AbortController();
      stop.disabled = false;
      const methods = picks.flatMap((p, i) => (p.value ? [lane(p.value, knobs[i].value)] : [])),
        asked = {
          prompts,
          methods: methods.length ? methods : [PLAIN],
          max_new_tokens: length.value,
          temperature: temperature.value,
          seed: Math.max(0, Math.trunc(Number(seed.value)) || 0),
          seeds: seeds.value,
          traces: true,
        };
      if (!begun) [earlier, traces] = [[], []];
      const before = earlier;
      let last = null;
      const part = (p) => {
        if (!p || !Array.isArray(p.rows)) return;
        last = before.length ? joined(p, before) : p;
        earlier = last.runs;
        tell.set(`${K.say(p.done, 6)} of ${K.say(p.of, 6)} prompts`, "busy");
        show(last, prompts, asked);
      };
      const got = await K.request(env.ctx, "prompt_set", begun ? { ...asked, from: begun } : asked, {
        press,
        tell,
        part,
        signal: control.signal,
        busy: "Warming up\u2026",
      });
      stop.disabled = true;
      if (Array.isArray(got?.traces)) traces = [...traces, ...got.traces];
      if (got) show(last ?? got, prompts, asked, true);
      else if (last && control.signal.aborted) tell.set(TEXTS["prompts.stopped"]);
    }

    /* What was measured before and now, as one answer: medians and intervals over all runs. */
    function joined(p, before) {
      const runs = [...before, ...p.runs];
      const over = (key, figure) => {
        const values = runs.filter((r) => r.method === key && K.finite(r[figure])).map((r) => r[figure]);
        return values.length ? [K.median(values), ...SpecViz.speed.medianInterval(values)] : null;
      };
      const rows = p.rows.map((row) => {
        const count_ = runs.filter((r) => r.method === row.method).length;
        return {
          ...row,
          confidence: Math.min(0.95, 1 - 2 * 0.5 ** count_),
          tokens_per_second: over(row.method, "tokens_per_second"),
          walltime_speedup: over(row.method, "walltime_speedup"),
          block_efficiency: over(row.method, "block_efficiency"),
        };
      });
      return { ...p, rows, runs };
    }
    const quoted = (word) => (/^[\w.=:/-]+$/.test(word) ? word : `'${word.replace(/'/g, "")}'`);
    /* The command that repeats a set and writes the trace of each run, and its file of prompts. A method that stands twice
       has one set of knobs there. */
    function repeat(asked) {
      const keys = [PLAIN, ...asked.methods.map((one) => one.method ?? one)],
        options = [
          "specviz bench --suite prompts.jsonl --repeats " + (asked.temperature ? asked.seeds : 1),
          "--methods " + [...new Set(keys)].join(","),
          ...asked.methods.flatMap((one) =>
            Object.entries(one.knobs || {}).map(
              ([name, value]) => `--knob ${quoted(`${one.method}.${name}=${value}`)}`,
            ),
          ),
          "--traces traces",
          `--max-new-tokens ${asked.max_new_tokens}`,
          asked.temperature ? `--temperature ${asked.temperature} --seed ${asked.seed}` : "",
        ],
        lines = asked.prompts.map((prompt) => JSON.stringify({ task: "mine", prompt }) + "\n").join("");
      const save = K.button("prompts.jsonl", () =>
        SpecViz.save.give(new Blob([lines], { type: "application/jsonl" }), "prompts.jsonl"),
      );
      return el(
        "div",
        { class: "pn-repeat" },
        K.small(TEXTS["prompts.repeat"].replace("{file}", "prompts.jsonl"), " ", save),
        el("code", { class: "pn-command" }, options.filter(Boolean).join(" ")),
      );
    }
    const triple = (x, form, many) =>
      !Array.isArray(x) ? "\u2013" : many ? `${form(x[0])} (${form(x[1])} to ${form(x[2])})` : form(x[0]);
    const first = (x) => (Array.isArray(x) ? x[0] : x);
    const believed = (r) =>
      r.named !== false && SpecViz.timing.plausible(first(r.walltime_speedup), first(r.block_efficiency));
    /* What the rows come to, as {id, key}: the fastest, where its interval lies above all others and no time is in doubt. */
    function verdict(rows, sure) {
      if (!sure) return { id: "prompts.doubt", key: "" };
      const speeds = rows.filter((r) => Array.isArray(r.tokens_per_second));
      const best = SpecViz.timing.clearBest(
        speeds.map(({ key, title, tokens_per_second: [value, low, high] }) => ({ key, title, value, low, high })),
      );
      return best && rows.length > 1
        ? { id: "prompts.best", key: best.key, title: best.title }
        : { id: "prompts.level", key: "" };
    }
    const mark = (r, x) => (believed(r) ? x : K.unnamed());
    function show(got, prompts, asked, ended = false) {
      const left = ended && got.done < got.of,
        runs = Array.isArray(got.runs) ? got.runs.slice(0, MOST * (METHODS + 1) * SEEDS) : [],
        trusted = got.rows.every(believed) && runs.every((r) => r.named === false || believed(r)),
        drawn = asked.seeds > 1 && asked.temperature > 0,
        titles = new Map(got.rows.map((r) => [r.method, K.say(r.title, 60)])),
        order = (r) => first(trusted ? r.tokens_per_second : r.block_efficiency) ?? 0,
        rows = got.rows.slice(0, METHODS + 1).sort((a, b) => order(b) - order(a)),
        found = verdict(
          rows.map((r) => ({ ...r, key: r.method })),
          trusted,
        ),
        sure = Math.round(100 * (rows[0]?.confidence ?? 0));
      out.replaceChildren(
        left
          ? el(
              "p",
              { class: "pn-prose", "data-message": "prompts.left" },
              TEXTS["prompts.left"].replace("{done}", K.say(got.done, 6)).replace("{of}", K.say(got.of, 6)),
              " ",
              K.button("Go on", () => run(got.done)),
            )
          : "",
        rows.length > 1
          ? el(
              "p",
              { class: "pn-prose", "data-message": found.id, "data-best": found.key },
              SpecViz.timing.remarks(rows, (r) => !believed(r), got.replaced, got.passes),
              TEXTS[found.id].replace("{title}", () => K.say(found.title, 60)),
            )
          : "",
        K.table(
          [
            { name: "method" },
            { name: "tokens/s", num: true },
            { name: "times plain decoding", num: true },
            { name: "tokens a pass", num: true },
          ],
          rows.map((r) => [
            K.say(r.title, 60),
            mark(r, triple(r.tokens_per_second, rate, sure)),
            mark(r, triple(r.walltime_speedup, times, sure)),
            triple(r.block_efficiency, (x) => x.toFixed(2), sure),
          ]),
          `Median over ${count(K.finite(got.done) ? got.done : 0, drawn ? "draw" : "prompt")}` +
            `${sure ? `, in brackets its interval (${sure} %)` : ""}. ${K.say(got.machine, 160)}.`,
        ),
        K.table(
          [
            { name: "prompt" },
            { name: "method" },
            { name: "tokens", num: true },
            { name: "tokens/s", num: true },
            { name: "times plain decoding", num: true },
            { name: "tokens a pass", num: true },
          ],
          runs.map((r) => [
            `${r.prompt + 1}. ${K.say(prompts[r.prompt], 40)}${drawn ? `, seed ${K.say(r.seed, 12)}` : ""}`,
            titles.get(r.method) ?? K.say(r.method, 60),
            K.say(r.tokens, 8),
            mark(r, K.finite(r.tokens_per_second) ? rate(r.tokens_per_second) : "\u2013"),
            mark(r, K.finite(r.walltime_speedup) ? times(r.walltime_speedup) : "\u2013"),
            K.finite(r.block_efficiency) ? r.block_efficiency.toFixed(2) : "\u2013",
          ]),
          "Every run",
        ),
        repeat(asked),
        ended ? P.promptTraces.section(env, traces, drawn) : "",
      );
    }
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        el("b", null, "Nothing raced yet"),
        "Paste a few prompts and press \u201cRace them\u201d.",
      ),
    );
    return {
      root: el(
        "div",
        { class: "pn-view" },
        K.head("Your prompts", K.lead(TEXTS["prompts.lead"])),
        K.twoColumns(
          [
            text.root,
            el("label", { class: "pn-help" }, TEXTS["prompts.help"], file),
            picks.slice(0, 2).map((p) => p.root),
            length.root,
            temperature.root,
            el(
              "details",
              { class: "pn-more" },
              el("summary", null, "More methods, knobs, seeds"),
              picks.flatMap((p, i) => [
                i < 2 ? el("p", { class: "pn-help" }, `Method ${i + 1}`) : p.root,
                knobs[i].root,
              ]),
              seed.root,
              seeds.root,
            ),
            el("div", { class: "pn-row" }, press, stop),
            tell.root,
          ],
          [out],
        ),
      ),
      update() {
        if (touched) return;
        const now = chosen(env);
        (now.length ? now : USUAL)
          .slice(0, METHODS)
          .forEach((key, i) => (picks[i].input.value = names.has(key) ? key : ""));
      },
      destroy: () => control?.abort(),
    };
  }

  (P.views = P.views || {}).prompts = view;
  P.prompts = { read };
})();
