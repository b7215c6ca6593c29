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
  /* grids: patches of each scale's side. A part holds what its patch adds to the scales before it, around 128. */
  const scales = ({ grids, side }) => ({ ...patches({ columns: 0, rows: 0, side }), grids });
  const KINDS = { text: () => text, patches, scales };

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

  /* The scale that token number i belongs to, and the token's place in it. */
  function scaleOf(grids, i) {
    let scale = 0;
    while (scale < grids.length - 1 && i >= grids[scale] ** 2) i -= grids[scale++] ** 2;
    return { scale, place: i };
  }

  /* A map of n x n values of three colours, enlarged bilinearly to size x size and added to `sum`. */
  function addEnlarged(sum, map, n, size) {
    const steps = Array.from({ length: size }, (_, i) => {
      const at = Math.max(0, ((i + 0.5) * n) / size - 0.5),
        lo = Math.floor(at);
      return [lo, Math.min(lo + 1, n - 1), at - lo];
    });
    steps.forEach(([y0, y1, v], y) =>
      steps.forEach(([x0, x1, u], x) => {
        for (let c = 0; c < 3; c++) {
          const value = (r, k) => map[3 * (r * n + k) + c],
            top = value(y0, x0) * (1 - u) + value(y0, x1) * u,
            low = value(y1, x0) * (1 - u) + value(y1, x1) * u;
          sum[3 * (y * size + x) + c] += top * (1 - v) + low * v;
        }
      }),
    );
  }

  /* The picture after each scale that the first tokens of a lane begin: {size, values: RGB as numbers}. */
  function growing(lane, upto) {
    const { grids, side } = of(lane),
      size = grids[grids.length - 1] * side,
      values = new Float32Array(3 * size * size).fill(128),
      out = [];
    let first = 0;
    for (const grid of grids) {
      if (first >= upto) break;
      const n = grid * side,
        map = new Float32Array(3 * n * n);
      lane.tokens.slice(first, Math.min(upto, first + grid * grid)).forEach((t, place) => {
        const part = t.parts.find((p) => p.px);
        for (let k = 0; part && k < side * side; k++) {
          const y = Math.floor(place / grid) * side + Math.floor(k / side),
            x = (place % grid) * side + (k % side);
          for (let c = 0; c < 3; c++) map[3 * (y * n + x) + c] = part.px[3 * k + c] - 128;
        }
      });
      addEnlarged(values, map, n, size);
      out.push({ size, values: values.slice() });
      first += grid * grid;
    }
    return out;
  }

  SV.output = { of, alone, painted, growing, scaleOf, PATCH };
})();
