/* A trace inside a link: its records, deflated, in the letters that a link may hold. What comes out of a link is read like any
   imported file, and never more of it than a trace may hold. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});
  const MOST = 4_000_000; /* bytes that a link may unfold to */
  const DISTRIBUTIONS = ["top", "top_p", "resid", "top_softmax"];

  /* The records without what only the inspector's tables need: the best tokens of each distribution, and the lenses.
     Fractions keep seven digits. */
  function thin(records) {
    const bare = (x) =>
      Array.isArray(x)
        ? x.map(bare)
        : x && typeof x === "object"
          ? Object.fromEntries(Object.entries(x).flatMap(([k, v]) => (DISTRIBUTIONS.includes(k) ? [] : [[k, bare(v)]])))
          : typeof x === "number" && !Number.isInteger(x)
            ? Number(x.toPrecision(7))
            : x;
    const few = records.filter((r) => r.type !== "lens").map((r) => (r.type === "header" ? r : bare(r))),
      used = new Set();
    for (const r of few) {
      for (const n of r.nodes || []) used.add(n.tok);
      for (const p of r.pieces || []) used.add(p.tok);
      for (const id of r.prompt?.ids || []) used.add(id);
      if (r.tail) used.add(r.tail.tok);
    }
    return few.map((r) =>
      r.type === "vocab"
        ? {
            ...r,
            tokens: Object.fromEntries(Object.entries(r.tokens || {}).filter(([id]) => used.has(Number(id)))),
          }
        : r,
    );
  }

  async function squeeze(records) {
    const text = records.map((r) => JSON.stringify(r) + "\n").join(""),
      small = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw")),
      bytes = new Uint8Array(await new Response(small).arrayBuffer());
    let letters = "";
    for (const b of bytes) letters += String.fromCharCode(b);
    return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
  }

  /* The trace in at most so many letters, whole or else thin; "" where it does not fit. */
  page.pack = async (records, room) => {
    try {
      if (records.length > 20_000 || room < 1) return "";
      const whole = await squeeze(records);
      if (whole.length <= room) return whole;
      const less = await squeeze(thin(records));
      return less.length <= room ? less : "";
    } catch {
      return ""; /* a browser that cannot deflate */
    }
  };

  /* The text of a compressed stream; "" where it unfolds to more than ``most`` bytes. Throws where it is damaged. */
  page.inflate = async (stream, format, most) => {
    const reader = stream.pipeThrough(new DecompressionStream(format)).getReader(),
      parts = [];
    let size = 0;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      size += value.length;
      if (size > most) {
        await reader.cancel();
        return "";
      }
      parts.push(value);
    }
    return new Blob(parts).text();
  };

  /* The text of a trace; "" where the letters hold none, or too much. */
  page.unpack = async (letters) => {
    try {
      const bytes = Uint8Array.from(atob(letters.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
      return await page.inflate(new Blob([bytes]).stream(), "deflate-raw", MOST);
    } catch {
      return "";
    }
  };
})();
