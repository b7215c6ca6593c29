/* Tables as comma-separated values (RFC 4180), and the button that copies one. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText } = SV.dom;

  /* A cell that a spreadsheet would take for a formula is quoted as text. */
  const cell = (x) => {
    const s = String(x ?? ""),
      safe = /^[=+@\t\r]|^-[^\d.]/.test(s) ? "'" + s : s;
    return /[",\n\r]/.test(safe) ? '"' + safe.replace(/"/g, '""') + '"' : safe;
  };
  /** @param {unknown[][]} rows */
  const lines = (rows) => rows.map((r) => r.map(cell).join(",")).join("\r\n");

  /* A figure as a person reads it, "1,234.5", "33 %", "12.5 ms", "1.40\u00d7", "about 46 (44 to 48)", as {value, low, high,
     unit}, or
     null. Times are in seconds. */
  const FIGURE =
    /^(?:about )?([-\u2212+]?[\d,]*\.?\d+)\s*(%|\u00d7|ms|\u00b5s|s|\/s)?(?: \(([\d,.]+).* to ([\d,.]+).*\))?$/;
  const SCALE = { ms: 1e-3, "\u00b5s": 1e-6, s: 1 };
  function figure(text) {
    const found = FIGURE.exec(String(text ?? "").trim());
    if (!found) return null;
    const [, value, unit = "", low, high] = found,
      number = (x) => (x === undefined ? "" : Number(x.replace(/,/g, "").replace("\u2212", "-")) * (SCALE[unit] ?? 1)),
      tidy = (x) => (x === "" || !Number.isFinite(x) ? "" : Number(x.toPrecision(6)));
    return {
      value: tidy(number(value)),
      low: tidy(number(low)),
      high: tidy(number(high)),
      unit: unit in SCALE ? "s" : unit,
    };
  }
  const EMPTY = ["", "\u2013"];
  /* Rows of texts, heads first, with bare numbers in the columns that hold figures only: the unit goes to the head, the ends of
     an
     interval into columns of their own. */
  /** @param {unknown[][]} rows */
  function bare([heads, ...rows]) {
    const columns = (heads ?? []).map((name, i) => {
      const cells = rows.map((row) => row[i]),
        known = cells.map((x) => (EMPTY.includes(String(x ?? "").trim()) ? undefined : figure(x))),
        units = new Set(known.flatMap((f) => (f ? [f.unit] : [])));
      if (known.includes(null) || units.size !== 1) return [{ name, cells }];
      const unit = [...units][0],
        head = String(name) + (["", "\u00d7"].includes(unit) ? "" : ` (${unit})`),
        part = (key, more) => ({ name: head + more, cells: known.map((f) => f?.[key] ?? "") });
      return [
        part("value", ""),
        ...(known.some((f) => f && f.low !== "") ? [part("low", " low"), part("high", " high")] : []),
      ];
    });
    const all = columns.flat();
    return [all.map((c) => c.name), ...rows.map((_, i) => all.map((c) => c.cells[i]))];
  }

  /* The rows of a table on the page, its heads first: without tips and hidden columns, a picture by its label. */
  /** @param {Element} table */
  function read(table) {
    const text = (c) => (c.querySelector(".def, th > .small") || c).textContent,
      named = (c) => c.querySelector("[role=img]")?.getAttribute("aria-label") ?? c.textContent;
    return [...table.querySelectorAll("tr")].map((row) =>
      [...row.cells].filter((c) => !c.hidden).map((c) => (c.closest("thead") ? text(c) : named(c))),
    );
  }

  /* The button that copies what get() returns, with a word on whether it worked. */
  /** @param {() => string} get */
  function key(get) {
    const said = el("span", { class: "small quiet", role: "status" });
    async function copy() {
      try {
        await navigator.clipboard.writeText(get());
        setText(said, SV.messages.say("csv.copied"));
      } catch {
        setText(said, SV.messages.say("csv.refused"));
      }
    }
    const press = el("button", { type: "button", class: "csv", on: { click: copy } }, SV.messages.say("csv.copy"));
    return el("p", { class: "csvrow" }, press, said);
  }
  /* A table with that button under it. */
  /** @param {Element} table */
  const under = (table) => [table, key(() => lines(bare(read(table))))];

  SV.csv = { lines, bare, figure, read, key, under };
})();
