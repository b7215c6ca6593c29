/* Tokens as elements of the text: their spaces, line breaks, blanks and open bytes; and the prompt as
   the tokens it was read as. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, parts } = SV.dom;
  const VERDICT_NAMES = {
    acc: "accepted",
    cor: "correction",
    bon: "bonus",
    pla: "plain",
    dra: "drafted",
    rej: "rejected",
    ski: "never examined",
  };

  /* The token's text outside the underline is its leading space: a text node before the span. */
  function tokenNodes(t, cls, marks) {
    const list = t.parts.slice();
    let lead = "";
    if (marks) return [whole(t, cls, list)];
    if (typeof list[0] === "string") {
      lead = /^ *(?=[^ \n\r\t])/.exec(list[0])?.[0] ?? "";
      if (lead) list[0] = list[0].slice(lead.length);
    }
    const body = list.map((p) => (typeof p === "string" ? p : p.c)).join("");
    const extra = (/\n/.test(body) ? " nl" : "") + (t.special ? " eos" : "") + (!body && t.carry ? " part" : "");
    const span = el("span", { class: "t " + cls + extra, "data-v": VERDICT_NAMES[cls], "data-i": t.i }, parts(list));
    if (t.special && !body) span.append("\u25a0 end");
    return lead ? [document.createTextNode(lead), span] : [span];
  }

  /* With marks on, the leading space belongs to the token's span, every blank shows a glyph that is no text, and a token that
     ends inside a character shows its own bytes. */
  function whole(t, cls, list) {
    const kids = list.flatMap((p) =>
      typeof p === "string"
        ? p
            .split(/( +|\t)/)
            .filter(Boolean)
            .map(blank)
        : parts([p]),
    );
    const body = list.map((p) => (typeof p === "string" ? p : p.c)).join("");
    const span = el(
      "span",
      {
        class: "t " + cls + (/\n/.test(body) ? " nl" : "") + (t.special ? " eos" : ""),
        "data-v": VERDICT_NAMES[cls],
        "data-i": t.i,
      },
      kids,
    );
    if (t.special && !body) span.append("\u25a0 end");
    if (t.own) span.append(el("span", { class: "chip" }, SV.text.joined(t.own.map(SV.text.byteChip))));
    return span;
  }
  function blank(s) {
    if (s === "\t") return el("span", { class: "ws", "data-g": "\u21e5" }, s);
    return /^ +$/.test(s)
      ? el("span", { class: "ws", "data-g": s.length > 8 ? "\u2423\u00d7" + s.length : "\u00b7".repeat(s.length) }, s)
      : s;
  }
  /* The bytes of a token that leaves a character open: from the vocabulary, for the text holds only what is complete. */
  const ownBytes = (lane, t) => (t.carry && !t.parts.length ? SV.text.bytesOf(lane.vocab.get(t.tok)) : null);

  /* The prompt as the tokens it was read as, so that a copy can point at its source: the ids whose bytes make up the
     last message. Null where they do not, as with a tokenizer that changes its input; then the prompt is one text. */
  const MOST_ASKED = 4000,
    MOST_BYTES = 200_000,
    MOST_STEPS = 5_000_000;
  function askTokens(lane, p) {
    const ids = p.ids || [],
      want = new TextEncoder().encode(String(p.text || ""));
    if (!ids.length || ids.length > MOST_ASKED || !want.length || !ids.every((id) => lane.vocab.has(id))) return null;
    if (ids.reduce((n, id) => n + lane.vocab.get(id).length, 0) > MOST_BYTES) return null;
    const each = ids.map((id) => SV.text.bytesOf(lane.vocab.get(id))),
      all = each.flat(),
      at = findLast(all, want),
      out = [];
    if (at < 0) return null;
    let b = 0,
      held = [],
      first = -1;
    each.forEach((bytes, i) => {
      const part = bytes.slice(Math.max(0, at - b), Math.max(0, at + want.length - b));
      b += bytes.length;
      if (!part.length) return;
      if (first < 0) first = i;
      const { parts: shown, carry } = SV.text.decode(held.concat(part));
      held = carry;
      if (!shown.length) return;
      out.push(el("span", { "data-p": first }, parts(shown)));
      first = -1;
    });
    return held.length ? null : out;
  }
  function findLast(all, want) {
    let steps = 0;
    for (let i = all.length - want.length; i >= 0 && steps < MOST_STEPS; i--) {
      let k = 0;
      while (k < want.length && all[i + k] === want[k]) k++;
      if (k === want.length) return i;
      steps += k + 1;
    }
    return -1;
  }

  SV.tokens = { VERDICT_NAMES, tokenNodes, ownBytes, askTokens };
})();
