/* Links that carry a choice: which tab, which prompt, methods, knobs and sampling, which recording, and the place on the board
   (those keys are the board's own). Everything in a link is checked before it is used; what does not fit is left out. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});
  /** @type {Record<string, [name: string, low: number, high: number]>} */
  const NUMBERS = {
    t: ["temperature", 0, 2],
    top: ["top_p", 0.01, 1],
    n: ["length", 1, 512],
    s: ["seed", 0, Number.MAX_SAFE_INTEGER],
    x: ["repeats", 1, 5],
    c: ["prompts", 1, 8],
  };
  const PLACE = ["layout", "lane", "round", "phase", "node", "tab"];

  /* {page, trace, run, after, packed, stored, place, set: {prompt, methods, knobs, temperature, top_p, length, seed, repeats,
     prompts, system, target, draft, predicted}}; run: a visitor's own, to be made again; after: it followed other turns,
     which no link carries; packed: its trace, where that was small enough (see pack_trace.js); stored: the name under
     which the server keeps a larger one (see stored_runs.js). A prompt that is too long is left whole: the server says so. */
  function readLink(hash) {
    const q = new URLSearchParams(
        String(hash || "")
          .replace(/^#/, "")
          .slice(0, 40000),
      ),
      set = {},
      place = new URLSearchParams();
    for (const [key, [name, low, high]] of Object.entries(NUMBERS)) {
      const x = q.get(key) === null || q.get(key) === "" ? NaN : Number(q.get(key));
      if (x >= low && x <= high) set[name] = x;
    }
    if (q.has("p")) set.prompt = q.get("p");
    if (q.has("sys")) set.system = q.get("sys");
    if (q.has("like")) set.predicted = q.get("like");
    if (q.has("m")) set.methods = lanes(q.get("m")).slice(0, 8);
    if (/^[\w./@-]{1,200}$/.test(q.get("model") || "")) set.target = q.get("model");
    if (/^[\w./@-]{1,200}$/.test(q.get("draft") || "")) set.draft = q.get("draft");
    const knobs = object(q.get("k"));
    if (knobs) set.knobs = knobs;
    const generation = page.generationOf(json(q.get("g")));
    if (Object.keys(generation).length) set.generation = generation;
    for (const key of PLACE) if (q.has(key)) place.set(key, q.get(key));
    const trace = /^[\w-]{1,80}$/.test(q.get("trace") || "") ? q.get("trace") : "";
    const packed = /^[\w-]{1,32000}$/.test(q.get("z") || "") ? q.get("z") : "";
    const stored = /^[0-9a-f]{64}$/.test(q.get("stored") || "") ? q.get("stored") : "";
    const [run, after] = ["run", "after"].map((name) => q.get(name) === "1");
    return { page: q.get("page") || "", trace, run, after, packed, stored, place: String(place), set };
  }
  /* Names with commas between, or JSON where a lane has knobs of its own. */
  function lanes(text) {
    if (!text.startsWith("[")) return text.split(",").filter(Boolean);
    try {
      return JSON.parse(text).filter((x) => typeof x === "string" || (plain(x) && typeof x.method === "string"));
    } catch {
      return [];
    }
  }
  function object(text) {
    try {
      const value = JSON.parse(text);
      return plain(value) ? Object.fromEntries(Object.entries(value).filter(([, knobs]) => plain(knobs))) : null;
    } catch {
      return null;
    }
  }
  function json(text) {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }
  const plain = (x) => Boolean(x) && typeof x === "object" && !Array.isArray(x);

  /* set: as readLink gives it; defaults are left out, so that a link stays short. */
  function makeLink(set, where, { run = false, after = false, trace = "", stored = "" } = {}) {
    const q = new URLSearchParams();
    q.set("page", page.tab || "watch");
    if (run) q.set("run", "1");
    if (after) q.set("after", "1");
    if (stored) q.set("stored", stored);
    if (trace && !run) q.set("trace", trace);
    else {
      if (set.prompt) q.set("p", set.prompt);
      const own = set.methods?.some((x) => typeof x !== "string");
      if (set.methods?.length) q.set("m", own ? JSON.stringify(set.methods) : set.methods.join(","));
      if (Object.keys(set.knobs || {}).length) q.set("k", JSON.stringify(set.knobs));
      for (const [key, [name]] of Object.entries(NUMBERS))
        if (set[name] !== undefined && set[name] !== page.defaults?.[name]) q.set(key, set[name]);
      const { image: _, ...fields } = set.generation || {}; /* too long for a link */
      if (Object.keys(fields).length) q.set("g", JSON.stringify(fields));
      if (set.system) q.set("sys", set.system);
      if (set.predicted) q.set("like", set.predicted);
      if (set.target) q.set("model", set.target);
      if (set.draft) q.set("draft", set.draft);
    }
    const place = new URLSearchParams(String(where || "").replace(/^#/, ""));
    for (const key of PLACE) if (place.has(key)) q.set(key, place.get(key));
    const url = new URL(location.href);
    /* what previews a link reads no hash: a stored run is named in the query, too */
    if (stored) url.searchParams.set("run", stored);
    else url.searchParams.delete("run");
    url.hash = String(q);
    return String(url);
  }
  Object.assign(page, { readLink, makeLink });

  /* The page's controls, in the order in which its listeners give them (see page.py). */
  const NAMES = [
    "prompt",
    "methods",
    "knobs",
    "temperature",
    "top_p",
    "length",
    "seed",
    "repeats",
    "prompts",
    "system",
    "target",
    "draft",
    "predicted",
    "generation",
  ];
  const KINDS = {
    prompt: "string",
    system: "string",
    target: "string",
    draft: "string",
    predicted: "string",
    temperature: "number",
    top_p: "number",
    length: "number",
    seed: "number",
    repeats: "number",
    prompts: "number",
  };
  const named = (values) => Object.fromEntries(NAMES.map((name, i) => [name, values[i]]));

  const AS_IS = { __type__: "update" }; /* what gr.skip() is */

  /* What the controls should hold, and a sentence on what is left out: a choice (from a link, a lesson, an example). What it does
     not name is left alone and not written back: somebody may be typing there while the page loads. */
  page.take = (...values) => {
    const set = { ...page.pending },
      lacks = page.lacks(set);
    page.pending = null;
    if (typeof set.target === "string") {
      set.target = page.modelOf(set.target);
      document.dispatchEvent(new CustomEvent("specviz:othertarget", { detail: set.target ?? "" }));
      if (set.target === undefined) delete set.draft; /* it belongs to that model */
    }
    const now = named(values);
    page.chooseModels(...["target", "draft"].map((name) => (typeof set[name] === "string" ? set[name] : now[name])));
    const sample = typeof set.target === "string" ? page.sampleOf?.(set.target) : "";
    if (sample && !set.generation?.image) set.generation = { ...(set.generation ?? page.generated), image: sample };
    if (typeof set.target === "string" && !sample && !set.generation && page.generated?.image) {
      const { image: _, hide_image: __, ...fields } = page.generated; /* that model reads no picture */
      set.generation = fields;
    }
    page.defaults = page.defaults || now;
    document.dispatchEvent(new CustomEvent("specviz:taken"));
    const controls = NAMES.map((name) => {
      const value = set[name];
      if (name === "methods")
        return Array.isArray(value) ? JSON.stringify(value.filter(page.cardOf).slice(0, page.most)) : AS_IS;
      if (name === "knobs") return value && typeof value === "object" ? (page.knobs = value) : AS_IS;
      if (name === "generation") return plain(value) ? (page.generated = value) : AS_IS;
      return typeof value === KINDS[name] ? value : AS_IS;
    });
    return [...controls, lacks ? JSON.stringify({ state: "error", text: lacks }) : AS_IS];
  };

  /* What a method's knobs hold now, among those kept so far; a knob at its default is not kept. Done here and not on the server:
     an answer on its way would be too late for a press of Run, or would undo what was set after it. */
  page.keep = (key, defaults, given, values) => {
    const { [key]: before, ...others } = plain(given) ? given : {},
      kept = plain(before) ? { ...before } : {};
    defaults.forEach(([name, usual], i) => {
      if (values[i] === usual) delete kept[name];
      else kept[name] = values[i];
    });
    return (page.knobs = Object.keys(kept).length ? { ...others, [key]: kept } : others);
  };

  /* When the page has loaded: what its link says, or what was chosen before a reload. A choice made while it loaded wins. */
  page.first = (...values) => {
    const { set } = readLink(location.hash);
    page.pending = { ...(Object.keys(set).length ? set : page.remembered?.()), ...page.pending };
    return page.take(...values);
  };

  /* The knobs of a lane that are not at their defaults. */
  function changed({ method, knobs }) {
    const usual = Object.fromEntries(page.cardOf(method.key).knobs.map((knob) => [knob.name, knob.default]));
    return Object.fromEntries(
      Object.entries(plain(knobs) ? knobs : {}).filter(([name, value]) => value !== usual[name]),
    );
  }

  /* A lane whose method comes more than once, with its changed knobs. */
  function apart(head) {
    const knobs = changed(head);
    return Object.keys(knobs).length ? { method: head.method.key, knobs } : head.method.key;
  }

  /* How often each lane was run, and how many prompts it decoded at once, as the records tell it. */
  function times(records) {
    const ends = records.filter((r) => r.type === "done" && Array.isArray(r.totals?.repeats)),
      most = Math.max(0, ...ends.map((r) => r.totals.repeats.length)),
      whole = records.some((r) => r.type === "done" && ["stop", "length"].includes(r.finish));
    return {
      repeats: most ? most + 1 : whole && !ends.length ? 1 : undefined,
      prompts:
        records.find((r) => r.type === "lens" && r.kind === "class")?.data?.prompts?.length ?? (whole ? 1 : undefined),
    };
  }

  /* What makes the run on the board again, from its records; now: what the controls hold, for what no record tells. */
  page.settings = (records, now = {}) => {
    const heads = records.filter((r) => r.type === "header" && !r.answer?.index),
      { repeats = now.repeats, prompts = now.prompts } = times(records);
    const methods = heads.filter((h) => h.method?.key !== "autoregressive" && page.cardOf(h.method?.key)),
      twice = (h) => methods.filter((other) => other.method.key === h.method.key).length > 1,
      { prompt, sampling, max_new_tokens } = heads[0] || {},
      here = heads.filter((h) => h.clock !== "client"),
      /* Plain decoding names the pair; a lane may name the model in the middle that it drafted with. */
      { target, draft } = here.find((h) => h.method?.key === "autoregressive") || here[0] || {},
      own = page.drafts?.[page.models?.[target?.name]];
    return {
      prompt: prompt?.text || "",
      methods: methods.map((h) => (twice(h) ? apart(h) : h.method.key)),
      knobs: Object.fromEntries(
        methods
          .filter((h) => !twice(h))
          .map((h) => [h.method.key, changed(h)])
          .filter(([, knobs]) => Object.keys(knobs).length),
      ),
      temperature: sampling?.temperature,
      top_p: sampling?.top_p,
      seed: sampling?.seed,
      length: max_new_tokens,
      system: (prompt?.turns || []).find((t) => t?.role === "system")?.text || "",
      target: target?.name ?? "",
      draft: draft ? (draft.name === own ? "" : draft.name) : own ? "none" : "",
      repeats,
      prompts,
      generation: { ...page.generationOf(heads[0]?.request), ...(heads[0]?.answer ? { n: heads[0].answer.of } : {}) },
      predicted: now.predicted ?? document.querySelector("#predicted textarea")?.value,
    };
  };

  const LETTERS = 32_000; /* of a link that carries its run; readLink takes 40,000 */
  const THIS = "it opens this prompt, these methods and this round";
  /* What a run that is made again has in common with the first one: above temperature 0, what a method drafts decides
     which random numbers fall, and some draft by the clock. */
  page.alike = (temperature, after) =>
    after
      ? "without the turns before it, so other tokens may come"
      : temperature > 0
        ? "same seed; a method that goes by the clock may draw other tokens"
        : "same seed, same tokens";
  const AGAIN = (alike, why) =>
    `it makes this run again: press Run there; ${alike}; then this round opens; the run is too large for a link, and ` +
    `${why}: for the run itself save the trace and send the file`;
  const OPENS = (what, alike) => `${what} and opens this round; "Run it again" there makes it again: ${alike}`;
  const WITHIN = "it carries this run in itself";
  const SHOWN = () => `${WITHIN}, and this server keeps it for ${page.days} days, so that its preview shows it; it`;
  /* The clipboard may be written for a few seconds after a press only. */
  const soon = () => new Promise((done) => setTimeout(() => done({}), 2500));
  const STORED = () => `this server keeps the run for ${page.days} days, for whoever has the link; it opens it`;

  /* What stands on the board: its records, their headers, and whether it is a run of one's own: made here, or from a file. */
  function standing() {
    const records = page.board()?.trace() || [],
      heads = records.filter((r) => r.type === "header");
    return { records, heads, own: heads.length > 0 && (heads[0].mode !== "recorded" || page.trace === "") };
  }
  const followed = (heads) => Boolean(heads[0]?.prompt?.turns?.some((t) => t?.role === "user"));

  /* A link to what stands on the board, without the run itself; now: what the controls hold, where that is known. */
  page.link = (now = {}, stored = "") => {
    const { records, heads, own } = standing(),
      where = page.board()?.link();
    if (own) return makeLink(page.settings(records, now), where, { run: true, after: followed(heads), stored });
    const typed = Boolean(now.prompt?.trim()) && now.prompt !== heads[0]?.prompt?.text;
    return makeLink({ ...now, prompt: now.prompt || page.asked() }, typed ? "" : where, {
      trace: heads.length && !typed ? (page.trace ?? "first") : "",
    });
  };

  /* {link, text}: of the run on the board where it is one's own; else of the recording; else of what stands in the controls.
     keep: whether the server may be asked to keep a run that is too large for the link; shown: and any run, for the link's
     preview, which the server makes. */
  async function linkOf(now, keep, shown = false) {
    const { records, heads, own } = standing(),
      link = page.link(now);
    if (!own) return { link, text: THIS };
    const packed = await page.pack(records, LETTERS - link.length - 3),
      alike = page.alike(heads[0].deterministic ? 0 : heads[0].sampling?.temperature, followed(heads));
    if (packed) {
      const { hash } = shown ? await Promise.race([page.store(records), soon()]) : {},
        carried = (hash ? page.link(now, hash) : link) + "&z=" + packed;
      return { link: carried, text: OPENS(hash ? SHOWN() : WITHIN, alike) };
    }
    const { hash, why } = keep ? await page.store(records) : {};
    return hash ? { link: page.link(now, hash), text: OPENS(STORED(), alike) } : { link, text: AGAIN(alike, why) };
  }

  /* {link, text} of what stands on the board, with the run inside where it is one's own and small enough. */
  page.linkWithRun = (keep) => linkOf({}, keep);

  page.share = async (...values) => {
    const now = named(values);
    try {
      now.methods = JSON.parse(now.methods);
    } catch {
      now.methods = [];
    }
    const { link, text } = await linkOf(now, true, true);
    history.replaceState(null, "", link);
    const say = (copied) => JSON.stringify({ state: "", text: `${copied}: ${text}.` });
    try {
      await navigator.clipboard.writeText(link);
      return say("Link copied");
    } catch {
      return say("The address bar now holds a link");
    }
  };

  /* An example fills the prompt and chooses its methods, and says so where others were chosen. */
  /** What the visitor had chosen before an example set it: {name: value}, or null.
   * @type {Record<string, any> | null} */
  let own = null;
  const EMPTY = { target: "", temperature: 0 };
  function backFrom(set) {
    const now = page.choices(),
      kept = own ?? {};
    /* Its methods may need its model, so they end with it. */
    for (const name of set ? ["methods", ...Object.keys(set)] : [])
      if (!(name in kept)) kept[name] = now[name] ?? EMPTY[name] ?? null;
    const back = Object.fromEntries(Object.entries(kept).filter(([name, x]) => !(set && name in set) && x !== null));
    own = set ? kept : null;
    return Object.keys(back).length ? back : null;
  }
  /* A new conversation begins with the visitor's own model and settings, too. */
  document.addEventListener("click", (event) => {
    if (!(/** @type {HTMLElement} */ (event.target).closest?.("#new-chat"))) return;
    const back = backFrom(null);
    if (!back) return;
    page.pending = back;
    queueMicrotask(() => page.send("input"));
  });

  page.example = ({ prompt, look, methods, titles, set }, chosen) => {
    let was = [];
    try {
      was = JSON.parse(chosen);
    } catch {
      /* nothing was chosen */
    }
    const same = was.length === methods.length && methods.every((key) => was.includes(key)),
      says = same ? "" : `It runs with ${titles.join(" and ")}: that replaces what was chosen.`;
    /* What only some examples choose, a model of their own or a temperature, ends with the next example that does not. */
    const back = backFrom(set);
    if (set || back) {
      page.pending = { ...back, ...set, prompt, methods };
      queueMicrotask(() => page.send("input"));
    }
    return [
      prompt,
      JSON.stringify({ state: "look", text: [look, says].filter(Boolean).join(" ") }),
      JSON.stringify(methods),
    ];
  };
})();
