/* Traces in and out: open a recording of the library or a file, take the trace home as lines or as one page, copy a link. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText } = SpecViz.dom;
  const K = P.kit,
    BYTES = 20 * 2 ** 20;
  const size = (n) =>
    !K.finite(n) ? "" : n >= 1e6 ? (n / 1e6).toFixed(1) + " MB" : Math.max(1, Math.round(n / 1e3)) + " kB";

  /* A text becomes the board's trace, or one sentence says why not; a refused one leaves the board as it was. */
  function openText(env, text, name, view = {}) {
    const { records, why } = SpecViz.reader.read(text);
    if (why) return why;
    const refusal = env.ctx.board?.load?.(records);
    if (typeof refusal === "string" && refusal) return refusal;
    env.ctx.opened?.(name || "");
    env.ctx.go?.(view.layout || (records.filter((r) => r.type === "header").length > 2 ? "race" : "watch"));
    env.ctx.board?.lead?.(view.panel || null);
    env.ctx.board?.toTop?.(); /* the list of recordings may have been scrolled: the first thing to see is what this one shows */
    return "";
  }

  /* The text of a file, unpacked where it is gzipped; never more than 20 MB of it. */
  async function textOf(file) {
    if (file.size > BYTES) throw new Error("The file is larger than 20 MB.");
    let stream = file.stream();
    const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
    if (head[0] === 0x1f && head[1] === 0x8b) stream = stream.pipeThrough(new DecompressionStream("gzip"));
    const reader = stream.getReader(),
      decode = new TextDecoder("utf-8", { fatal: true }),
      parts = [];
    let total = 0;
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        if ((total += value.length) > BYTES) throw new Error("The file is larger than 20 MB.");
        parts.push(decode.decode(value, { stream: true }));
      }
      return parts.join("") + decode.decode();
    } catch (e) {
      reader.cancel().catch(() => {});
      throw e instanceof TypeError ? new Error("The file is damaged, or is not text.") : e;
    }
  }

  function library(env) {
    const tell = K.status(),
      status = K.status(),
      list = el("div", { class: "pn-shelf" });
    const input = el("input", {
      type: "file",
      accept: ".jsonl,.json,.gz,.txt,application/jsonl",
      class: "pn-file",
      "aria-label": "Choose a trace file",
      on: {
        change: () => {
          take(input.files[0]);
          input.value = "";
        },
      },
    });
    const drop = el(
      "div",
      { class: "pn-drop" },
      el("b", null, "Open a file"),
      el(
        "span",
        null,
        "Drop a trace here, or choose one: .jsonl or .jsonl.gz, at most 20 MB. It stays in this browser until you share it.",
      ),
      el(
        "div",
        { class: "pn-row" },
        K.button("Choose a file", () => input.click()),
        input,
      ),
      status.root,
    );
    for (const [name, on] of [
      ["dragover", true],
      ["dragenter", true],
      ["dragleave", false],
      ["drop", false],
    ])
      drop.addEventListener(name, (e) => {
        e.preventDefault();
        drop.classList.toggle("over", on);
        if (name === "drop") take(e.dataTransfer.files[0]);
      });
    const root = el(
      "div",
      { class: "pn-view" },
      K.head("Recordings", K.lead("Open one and it plays at once. It needs no model, and every tab works on it.")),
      list,
      tell.root,
      drop,
    );
    let asked = false;

    async function take(file) {
      if (!file) return;
      status.set("Reading\u2026", "busy");
      try {
        const why = openText(env, await textOf(file), "");
        status.set(why || "Opened.", why ? "error" : "");
      } catch (e) {
        status.set(K.sentence(e), "error");
      }
    }
    async function ask() {
      asked = true;
      const got = await K.request(env.ctx, "library", {}, { tell, busy: "Fetching the list\u2026" });
      if (got === null) {
        asked = false;
        list.replaceChildren();
        return;
      }
      const all = (Array.isArray(got) ? got : []).filter((x) => x && typeof x.name === "string").slice(0, 60);
      list.replaceChildren(
        ...all.map((x) => {
          const press = el(
            "button",
            { type: "button", class: "pn-choice", "data-name": x.name, on: { click: () => open(x, press) } },
            el("b", null, K.say(x.title || x.name, 120)),
            x.about ? el("span", null, K.say(x.about, 300)) : null,
            el("small", null, size(x.bytes)),
          );
          return press;
        }),
      );
      if (!all.length) tell.set("No recordings are shipped with this copy.");
    }
    async function open(x, press) {
      const text = await K.request(env.ctx, "library_trace", { name: x.name }, { press, tell, busy: "Opening\u2026" });
      if (text === null) return;
      const why = openText(env, typeof text === "string" ? text : P.history.lines(text), x.name, x);
      tell.set(why, "error");
    }
    return {
      root,
      update() {
        if (!asked) ask();
      },
      destroy() {},
      take,
    };
  }

  function save(name, parts, type) {
    const link = el("a", { href: URL.createObjectURL(new Blob(parts, { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }
  /* JSON inside a script element that no browser runs: no tag can open or close, no separator ends a line. */
  const inert = (value) =>
    JSON.stringify(value).replace(/[<>&\u2028\u2029]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  /* The server's empty page with this trace in it. The page's policy names the digests of its script and style, not of data. */
  function fillPage(page, records) {
    const from = page.indexOf(">", page.indexOf('id="trace"')) + 1,
      to = page.indexOf("<" + "/script>", from);
    if (page.indexOf('id="trace"') < 0 || from < 1 || to < 0)
      throw new Error("The server's page has no place for a trace.");
    return page.slice(0, from) + inert(records) + page.slice(to);
  }
  const nameOf = (lanes) =>
    "specviz-" + (lanes.find((l) => !l.baseline)?.key || "trace").replace(/[^a-z0-9_-]+/gi, "-").slice(0, 40);

  function takeHome(env) {
    const tell = K.status(),
      status = K.status(),
      what = el("div"),
      place = el("p", { class: "pn-small" });
    const link = K.field({ label: "Link to this place", value: "", most: 60_000, readonly: true, on() {} }),
      frame = K.field({ label: "For slides and web pages (iframe)", value: "", most: 60_000, readonly: true });
    for (const f of [link, frame]) f.input.addEventListener("focus", () => f.input.select());
    const page = K.button("One HTML page", html),
      lines = K.button("JSON Lines", () => {
        save(
          nameOf(env.lanes()) + ".jsonl",
          env.records().map((r) => JSON.stringify(r) + "\n"),
          "application/jsonl",
        );
        tell.set("Saved.");
      });
    const root = el(
      "div",
      { class: "pn-view" },
      K.head("Take it home", K.lead("The trace on the board, as a file or as a link to exactly what is shown now.")),
      what,
    );
    const body = [
      el(
        "div",
        { class: "pn-box" },
        el("h3", null, "As a file"),
        el(
          "p",
          { class: "pn-prose" },
          "The HTML page opens with a double click, offline, with the whole viewer inside. JSON Lines is for " +
            "programs and for opening here again. Both hold the prompt and the text.",
        ),
        el("div", { class: "pn-row pn-gap" }, page, lines),
        tell.root,
      ),
      el(
        "div",
        { class: "pn-box pn-controls" },
        el("h3", null, "As a link"),
        place,
        link.root,
        el(
          "div",
          { class: "pn-row" },
          K.button("Copy link", () => copy(link), "primary"),
          K.button("Copy iframe", () => copy(frame)),
        ),
        frame.root,
        status.root,
      ),
    ];
    async function html() {
      const got = await K.request(env.ctx, "html", {}, { press: page, tell, busy: "Building the page\u2026" });
      if (typeof got !== "string") return;
      try {
        save(nameOf(env.lanes()) + ".html", [fillPage(got, env.records())], "text/html");
        tell.set("Saved.");
      } catch (e) {
        tell.set(K.sentence(e), "error");
      }
    }
    function address() {
      let url = null;
      try {
        url = env.ctx.link?.();
      } catch {
        /* the board's own link, then */
      }
      if (typeof url !== "string" || !url) return location.href.split("#")[0] + (env.ctx.board?.link?.() || "");
      const at = url.indexOf("#"),
        q = new URLSearchParams(at < 0 ? "" : url.slice(at + 1));
      q.set("page", env.where().layout === "race" ? "race" : "watch");
      return (at < 0 ? url : url.slice(0, at)) + "#" + q;
    }
    function fillIn(url) {
      link.input.value = url;
      try {
        const u = new URL(url);
        u.searchParams.set("embed", "1");
        frame.input.value =
          `<iframe src="${String(u).replace(/"/g, "%22")}" width="100%" height="560" ` +
          'style="border:0" title="specviz"></iframe>';
      } catch {
        frame.input.value = "";
      }
    }
    /* A small run of one's own travels inside the link and the frame: they show it without a press of Run. keep: the server
       may be asked to keep a larger one; only a press of a button asks it. */
    async function carry(url, keep) {
      const got = await Promise.resolve(env.ctx.linkWithRun?.(keep)).catch(() => null);
      if (!got || typeof got.link !== "string" || link.input.value !== url) return;
      const q = new URLSearchParams(got.link.split("#")[1] || "");
      for (const key of ["z", "stored"])
        if (q.has(key)) fillIn(shown(url, q) + `&${key}=` + encodeURIComponent(q.get(key)));
    }
    /* What previews a link reads its query only: a stored run is named there. */
    function shown(url, q) {
      if (!q.has("stored")) return url;
      const u = new URL(url);
      u.searchParams.set("run", q.get("stored"));
      return String(u);
    }
    async function copy(field) {
      if (!/&(z|stored)=/.test(link.input.value)) await carry(link.input.value, true);
      await K.copy(field.value, status);
    }
    return {
      root,
      update() {
        if (!env.lanes().length) {
          what.replaceChildren(env.empty("", "There is no trace on the board yet."));
          return;
        }
        if (!what.contains(body[0])) what.replaceChildren(el("div", { class: "pn-view" }, body));
        const url = address(),
          w = env.where();
        fillIn(url);
        carry(url);
        setText(
          place,
          "It opens round " +
            Math.max(1, (w.round ?? 0) + 1) +
            (w.node !== null && w.node !== undefined ? " with its token selected" : "") +
            ". " +
            "A shipped recording opens at once, and so does a run of your own that is small enough to travel inside the link. " +
            (env.ctx.days
              ? `A larger one is stored on this server when you copy its link or iframe, and opens for ${env.ctx.days} days.`
              : "This server keeps no larger ones: whoever opens the link presses Run to make it again. " +
                "To send the run, send the file."),
        );
      },
      destroy() {},
    };
  }

  Object.assign((P.views = P.views || {}), { library, take: takeHome });
  P.io = { save, openText, textOf, fillPage, inert, size };
})();
