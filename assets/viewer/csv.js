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
  const under = (table) => [table, key(() => lines(read(table)))];

  SV.csv = { lines, read, key, under };
})();
