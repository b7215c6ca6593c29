/* Bytes to what a person may see. A token's text is a list of parts: a string, or {c: "..."} for a chip
   (a lone byte, a control or bidirectional character). Nothing here touches the page. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));

  /* Controls, bidirectional overrides and invisible characters are named, never obeyed. The joiners U+200C/D and the
     variation selectors stay: emoji, Persian and Indic scripts need them. */
  const HIDDEN = new RegExp(
    "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f" +
      "\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]|\\udb40[\\udc00-\\udc7f]",
    "g",
  );
  /** @param {number} n @param {number} w */
  const hex = (n, w) => n.toString(16).toUpperCase().padStart(w, "0");
  /** @param {number} b */
  const byteChip = (b) => ({ c: "\\x" + hex(b, 2) });

  /* No text becomes more parts than a page can bear: what is left of a token or a prompt is counted in one last chip. */
  const MOST_PARTS = 2000,
    MOST_OF_TOKEN = 12;
  /** @param {Part[]} parts @param {number} most */
  const few = (parts, most) =>
    parts.length > most ? [...parts.slice(0, most), { c: "+" + (parts.length - most) }] : parts;

  /** @param {string} text */
  function visible(text) {
    const out = [];
    let at = 0;
    for (const m of text.matchAll(HIDDEN)) {
      if (out.length >= MOST_PARTS) {
        out.push({ c: "+" + (text.length - at) });
        return out;
      }
      if (m.index > at) out.push(text.slice(at, m.index));
      out.push({ c: "U+" + hex(m[0].codePointAt(0), 4) });
      at = m.index + m[0].length;
    }
    if (at < text.length) out.push(text.slice(at));
    return out;
  }

  /* Length of the character that begins with this byte, and the range its second byte must lie in. */
  /** @param {number} b */
  function lead(b) {
    if (b < 0x80) return [1, 0, 0];
    if (b >= 0xc2 && b <= 0xdf) return [2, 0x80, 0xbf];
    if (b >= 0xe0 && b <= 0xef) return [3, b === 0xe0 ? 0xa0 : 0x80, b === 0xed ? 0x9f : 0xbf];
    if (b >= 0xf0 && b <= 0xf4) return [4, b === 0xf0 ? 0x90 : 0x80, b === 0xf4 ? 0x8f : 0xbf];
    return [0, 0, 0];
  }
  /** @param {number[] | Uint8Array} bytes @param {number} i */
  function span(bytes, i) {
    const [need, lo, hi] = lead(bytes[i]);
    if (need < 2) return { need, have: need };
    let have = 1;
    while (have < need && i + have < bytes.length) {
      const b = bytes[i + have];
      if (have === 1 ? b < lo || b > hi : b < 0x80 || b > 0xbf) return { need: 0, have };
      have++;
    }
    return { need, have };
  }

  /* Decodes what is complete; the bytes of an unfinished last character come back as `carry`. */
  /** @param {number[] | Uint8Array} bytes */
  function decode(bytes) {
    const parts = [];
    let run = [];
    const flush = () => {
      if (run.length) parts.push(...visible(new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(run))));
      run = [];
    };
    let i = 0;
    while (i < bytes.length) {
      const { need, have } = span(bytes, i);
      if (need && have < need) break;
      if (need) for (let k = 0; k < need; k++) run.push(bytes[i + k]);
      else {
        flush();
        for (let k = 0; k < Math.max(1, have); k++) parts.push(byteChip(bytes[i + k]));
      }
      i += need || Math.max(1, have);
    }
    flush();
    return { parts: few(parts, MOST_OF_TOKEN), carry: Array.from(bytes.slice(i)) };
  }

  /** @param {unknown} b64 */
  function bytesOf(b64) {
    if (typeof b64 !== "string") return [];
    try {
      return Array.from(atob(b64), (c) => c.charCodeAt(0));
    } catch {
      return [];
    }
  }

  /* One token alone, as on a rejected branch: nothing will ever complete it, so its open bytes are chips. */
  /** @param {number[] | Uint8Array} bytes */
  function alone(bytes) {
    const { parts, carry } = decode(bytes);
    return parts.concat(carry.map(byteChip));
  }

  /** @param {Part[]} parts */
  const joined = (parts) => parts.map((p) => (typeof p === "string" ? p : p.c)).join("");

  /* A one-line label for trees, tables and the rail: whitespace that would vanish gets a glyph. */
  /** @param {Part[]} parts @param {number} [max] */
  function label(parts, max = 18) {
    let s = joined(parts).replace(/\r?\n/g, "\u21b5").replace(/\t/g, "\u21e5");
    if (/^ +$/.test(s)) s = s.length > 3 ? "\u2423\u00d7" + s.length : "\u2423".repeat(s.length);
    else s = s.replace(/^ /, "").replace(/ {2,}/g, (m) => "\u2423\u00d7" + m.length);
    const chars = Array.from(s);
    return chars.length > max ? chars.slice(0, max - 1).join("") + "\u2026" : s || "\u2205";
  }

  /* A short stable hash, for tests and for "has this changed?". */
  /** @param {unknown} value */
  function hash(value) {
    const s = typeof value === "string" ? value : JSON.stringify(value);
    let a = 0xdeadbeef,
      b = 0x41c6ce57;
    for (let i = 0; i < s.length; i++) {
      const c = s.charCodeAt(i);
      a = Math.imul(a ^ c, 2654435761);
      b = Math.imul(b ^ c, 1597334677);
    }
    return hex(a >>> 0, 8) + hex(b >>> 0, 8);
  }

  SV.text = { visible, decode, alone, bytesOf, byteChip, joined, label, hash };
})();
