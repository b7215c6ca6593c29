/* Runs kept in the visitor's own browser: text only, at most a dozen, at most three million characters, cleared by a button.
   Nothing is sent anywhere. A browser that refuses storage simply has no history. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const KEY = "specviz.history.1",
    MOST = 12,
    MAX_CHARACTERS = 3_000_000,
    LARGEST = 1_500_000,
    EVERY = 1500;
  const watched = new WeakSet(),
    met = new Set(); /* what was once looked at is not kept again after it was forgotten */

  function read() {
    try {
      const list = JSON.parse(localStorage.getItem(KEY) || "[]");
      return Array.isArray(list)
        ? list.filter((x) => x && typeof x.id === "string" && typeof x.text === "string").slice(0, MOST)
        : [];
    } catch {
      return [];
    }
  }
  function write(list) {
    let left = MAX_CHARACTERS;
    const kept = list.slice(0, MOST).filter((x) => (left -= x.text.length) >= 0);
    for (let n = kept.length; n >= 0; n--) {
      /* a fuller browser takes fewer */
      try {
        localStorage.setItem(KEY, JSON.stringify(kept.slice(0, n)));
        return kept.slice(0, n);
      } catch {
        /* less, then */
      }
    }
    return [];
  }
  const lines = (records) => records.map((r) => JSON.stringify(r)).join("\n") + "\n";

  const headers = (records) => records.filter((r) => r && r.type === "header");
  /* The name of a finished run of one's own; empty for anything else. */
  function idOf(records) {
    const heads = headers(records),
      ended = new Set(records.filter((r) => r && (r.type === "done" || r.type === "error")).map((r) => r.lane));
    if (heads.some((h) => h.mode !== "live" || !ended.has(h.lane) || typeof h.run_id !== "string")) return "";
    return heads
      .map((h) => h.run_id)
      .join("+")
      .slice(0, 400);
  }
  /* Keep a finished trace; false where it is not one, is known, or is too long. */
  function keep(records, now = new Date()) {
    const id = idOf(records),
      heads = headers(records),
      list = read();
    if (!id || list.some((x) => x.id === id)) return false;
    const text = lines(records);
    if (text.length > LARGEST) return false;
    met.add(id);
    const prompt = heads[0].prompt && typeof heads[0].prompt.text === "string" ? heads[0].prompt.text : "",
      titles = heads.map((h) => (h.method && typeof h.method.title === "string" ? h.method.title : "")).filter(Boolean);
    write([
      {
        id,
        at: now.toISOString(),
        prompt: prompt.slice(0, 300),
        methods: titles.slice(0, 8).map((t) => t.slice(0, 80)),
        text,
      },
      ...list,
    ]);
    document.dispatchEvent(new CustomEvent("specviz:history"));
    return true;
  }
  const forget = (id) => {
    met.add(id);
    write(read().filter((x) => x.id !== id));
    document.dispatchEvent(new CustomEvent("specviz:history"));
  };
  function clear() {
    for (const x of read()) met.add(x.id);
    try {
      localStorage.removeItem(KEY);
    } catch {
      /* nothing was kept */
    }
    document.dispatchEvent(new CustomEvent("specviz:history"));
  }

  /* From now on keep what this board finishes. Looked at rarely, and only when something changed. */
  function watch(board) {
    if (!board || typeof board.on !== "function" || watched.has(board)) return;
    watched.add(board);
    let timer = 0;
    const look = () => {
      timer = 0;
      try {
        const records = board.trace(),
          id = idOf(records);
        if (id && !met.has(id)) {
          met.add(id);
          keep(records);
        }
      } catch {
        /* a trace that cannot be kept is not kept */
      }
    };
    board.on("change", () => {
      if (!timer) timer = setTimeout(look, EVERY);
    });
    look();
  }

  P.history = { read, keep, forget, clear, watch, lines, KEY };
})();
