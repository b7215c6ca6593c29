/* Small tools for the page. Text reaches the page only as text nodes. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const NS = "http://www.w3.org/2000/svg";

  function el(tag, attrs, ...kids) {
    const e = document.createElement(tag);
    return fill(e, attrs, kids);
  }
  function svg(tag, attrs, ...kids) {
    const e = document.createElementNS(NS, tag);
    return fill(e, attrs, kids);
  }
  function fill(e, attrs, kids) {
    for (const [k, v] of Object.entries(attrs || {})) {
      if (v === null || v === undefined || v === false) continue;
      if (k === "class") e.setAttribute("class", v);
      else if (k === "on") for (const [name, f] of Object.entries(v)) e.addEventListener(name, f);
      else if (k === "css") for (const [name, x] of Object.entries(v)) e.style.setProperty(kebab(name), x);
      else e.setAttribute(k, v === true ? "" : String(v));
    }
    for (const kid of kids.flat(2)) if (kid !== null && kid !== undefined && kid !== false) e.append(kid);
    return e;
  }

  /* The name of a style as CSS writes it: gridTemplateColumns, which setProperty would ignore, is grid-template-columns. */
  const kebab = (name) =>
    name.startsWith("--") ? name : name.replace(/[A-Z]/g, (letter) => "-" + letter.toLowerCase());

  function setText(e, s) {
    if (e.textContent !== s) e.textContent = s;
  }
  function setAttr(e, k, v) {
    if (e.getAttribute(k) !== String(v)) e.setAttribute(k, String(v));
  }
  function parts(list) {
    return list.map((p) => (typeof p === "string" ? p : p.px ? pixels([p], 1, 1) : el("span", { class: "chip" }, p.c)));
  }

  /* Patches of a picture as a canvas of their own size: what is missing of it is left blank. */
  function pixels(patches, columns, rows, canvas = el("canvas", { class: "px", "aria-hidden": "true" })) {
    const side = patches.length ? patches[0].side : 1;
    if (canvas.width !== columns * side || canvas.height !== rows * side)
      Object.assign(canvas, { width: columns * side, height: rows * side });
    const c = canvas.getContext("2d"),
      data = c.createImageData(canvas.width, canvas.height);
    patches.forEach((p, i) => {
      for (let k = 0; k < side * side; k++) {
        const x = (i % columns) * side + (k % side),
          y = Math.floor(i / columns) * side + Math.floor(k / side),
          at = 4 * (y * canvas.width + x);
        data.data.set([p.px[3 * k], p.px[3 * k + 1], p.px[3 * k + 2], 255], at);
      }
    });
    c.putImageData(data, 0, 0);
    return canvas;
  }

  /* A square picture of RGB numbers, at its own size. */
  function paintSquare({ size, values }, canvas) {
    if (canvas.width !== size || canvas.height !== size) Object.assign(canvas, { width: size, height: size });
    const c = canvas.getContext("2d"),
      data = c.createImageData(size, size); /* numbers are rounded and cut to bytes */
    for (let i = 0; i < size * size; i++) data.data.set([...values.subarray(3 * i, 3 * i + 3), 255], 4 * i);
    c.putImageData(data, 0, 0);
  }

  const f3 = (x) => (x === null || x === undefined ? "\u2013" : x > 0 && x < 0.001 ? "under 0.001" : x.toFixed(3));
  const f2 = (x) => (x === null || x === undefined ? "" : x >= 0.995 ? "1.0" : x.toFixed(2).replace(/^0/, ""));
  const pct = (x) => (x === null || x === undefined ? "\u2013" : Math.round(x * 100) + " %");
  const rate = (x) => (x === null || x === undefined ? "\u2013" : x >= 1000 ? x.toFixed(0) : x.toFixed(1));
  const times = (x) => (x === null || x === undefined ? "\u2013" : x.toFixed(2) + "\u00d7");
  const span = (s) =>
    s === null || s === undefined
      ? "\u2013"
      : s < 0.01
        ? (s * 1e3).toFixed(1) + " ms"
        : s < 1
          ? Math.round(s * 1e3) + " ms"
          : s.toFixed(2) + " s";
  const count = (n, one, many) => n + " " + (n === 1 ? one : many || one + "s");

  function niceStep(x) {
    const p = 10 ** Math.floor(Math.log10(Math.max(x, 1e-9)));
    return [1, 2, 2.5, 5, 10].map((k) => k * p).find((v) => v >= x * 0.999);
  }

  /* On a projector drawings are this much larger: their smallest letters have 11 px, and 14 are asked for there. */
  const BIG = 14 / 11;
  const LANES = 5; /* shown side by side: four methods and plain decoding */
  function enlarge(drawn, big) {
    if (big !== 1)
      for (const name of ["width", "height"]) drawn.setAttribute(name, Math.ceil(drawn.getAttribute(name) * big));
    return drawn;
  }

  /* A canvas kept sharp at any device pixel ratio; w and h are units of the drawing, each `big` px. */
  function sheet(canvas, w, h, big = 1) {
    const d = Math.min(3, globalThis.devicePixelRatio || 1) * big;
    if (canvas.width !== Math.round(w * d) || canvas.height !== Math.round(h * d)) {
      canvas.width = Math.round(w * d);
      canvas.height = Math.round(h * d);
      canvas.style.width = w * big + "px";
      canvas.style.height = h * big + "px";
    }
    const c = canvas.getContext("2d");
    c.setTransform(d, 0, 0, d, 0, 0);
    c.clearRect(0, 0, w, h);
    return c;
  }

  const ROLES = [
    "surface",
    "sunken",
    "line",
    "line2",
    "ink",
    "ink2",
    "ink3",
    "acc",
    "rej",
    "cor",
    "bon",
    "verify",
    "draft",
    "over",
    "sans",
    "mono",
  ];
  function palette(root) {
    const cs = getComputedStyle(root),
      out = {};
    for (const r of ROLES) out[r] = cs.getPropertyValue("--sv-" + r).trim();
    return out;
  }

  /* A number for each object, the same as long as it lives: a lane is known by itself, not by its place, name or length. */
  const known = new WeakMap();
  let seen = 0;
  function who(x) {
    if (!x) return 0;
    if (!known.has(x)) known.set(x, ++seen);
    return known.get(x);
  }

  /* A definition, shown while its term is pointed at or has the focus. */
  function tip(key, name) {
    const d = SV.metrics.DEFINITIONS[key];
    return el(
      "span",
      { class: "tip", role: "tooltip" },
      el("b", null, name || d[0]),
      el("span", null, d[1]),
      el("code", null, d[2]),
    );
  }

  /* The same inside a sentence: a word with its definition on hover, focus or tap. */
  function term(key, word) {
    const say = tip(key),
      all = word + ": " + SV.metrics.DEFINITIONS[key][1];
    say.setAttribute("aria-hidden", "true");
    const shut = (e) => {
      if (e.key !== "Escape" || document.activeElement !== e.currentTarget) return;
      e.currentTarget.blur();
      e.stopPropagation();
    };
    return el(
      "button",
      { class: "term", type: "button", "aria-label": all, on: { keydown: shut } },
      el("span", { class: "def" }, word),
      say,
    );
  }

  /* Where an element stands, in its own units: a presentation is zoomed, and the browser's boxes are of the screen. */
  /** @param {HTMLElement} e */
  function placeOf(e) {
    const { left, top, width, height } = e.getBoundingClientRect(),
      zoom = /** @type {any} */ (e).currentCSSZoom || 1;
    return { left: left / zoom, top: top / zoom, width: width / zoom, height: height / zoom };
  }

  SV.dom = {
    placeOf,
    el,
    svg,
    setText,
    setAttr,
    parts,
    pixels,
    paintSquare,
    f2,
    f3,
    pct,
    rate,
    times,
    span,
    count,
    niceStep,
    sheet,
    BIG,
    LANES,
    enlarge,
    palette,
    tip,
    term,
    who,
  };
})();
