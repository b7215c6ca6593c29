/* What tokens are to a person, as the header of a trace says: text, or patches of a picture. Views ask the output of a lane and
   never for its kind. A patch is a part {c, px, side}: a glyph that stands for it in text, and its RGB bytes. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const T = SV.text;
  const PATCH = "\u25a6"; /* a square with a grid */

  const text = {
    columns: 0,
    rows: 0,
    side: 0,
    decode: T.decode,
    label: (bytes, tok, max) => T.label(T.alone(bytes), max),
  };

  /* columns, rows: of the grid; side: pixels of a patch's side. Tokens that are no patch add nothing. */
  const patches = ({ columns, rows, side }) => {
    const size = 3 * side * side,
      whole = (bytes) => bytes.length === size;
    return {
      columns,
      rows,
      side,
      decode: (bytes) => ({ parts: whole(bytes) ? [{ c: PATCH, px: Array.from(bytes), side }] : [], carry: [] }),
      label: (bytes, tok, max) => (whole(bytes) ? PATCH + " " + tok : T.label(T.alone(bytes), max)),
    };
  };
  const KINDS = { text: () => text, patches };

  const known = new WeakMap();
  function of(lane) {
    const said = lane.header && lane.header.output;
    if (!said) return text;
    if (!known.has(said)) known.set(said, (Object.hasOwn(KINDS, said.kind) ? KINDS[said.kind] : KINDS.text)(said));
    return known.get(said);
  }

  /* The parts of one token of a lane that stands alone, as on a rejected branch. */
  function alone(lane, tok) {
    const { parts, carry } = of(lane).decode(T.bytesOf(lane.vocab.get(tok)));
    return parts.concat(carry.map(T.byteChip));
  }

  /* The pixels of the first tokens of a lane, by patch in raster order. */
  const painted = (lane, upto) =>
    lane.tokens
      .slice(0, upto)
      .flatMap((t) => t.parts)
      .filter((p) => p.px)
      .slice(0, of(lane).columns * of(lane).rows);

  SV.output = { of, alone, painted, PATCH };
})();
