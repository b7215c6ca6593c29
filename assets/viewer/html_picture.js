/* What stands on the page as HTML, as a drawing: boxes, lines and letters where the browser has laid them out. For cards that are
   no drawing themselves, so that they can be saved like the others. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { svg } = SV.dom;
  const BASELINE = 0.79; /* of a line's height, from its top */
  const HATCHED = 0.35; /* opacity of what the page hatches */
  const SIDES = ["Top", "Right", "Bottom", "Left"];
  const clear = (value) => !value || value === "transparent" || /,\s*0\)$|\/\s*0\)$/.test(value);

  /* {drawn, w, h} of an element that is on the page. */
  function of(root) {
    const frame = root.getBoundingClientRect(),
      scale = root.offsetWidth ? frame.width / root.offsetWidth : 1,
      g = svg("g"),
      place = (r) => ({
        x: (r.left - frame.left) / scale,
        y: (r.top - frame.top) / scale,
        width: r.width / scale,
        height: r.height / scale,
      });
    let low = 0;
    const seen = (r) => (low = Math.max(low, r.y + r.height));

    function box(node, style) {
      const r = place(node.getBoundingClientRect()),
        hatch = /(?:rgba?|color|oklab|oklch)\([^()]*\)/.exec(style.backgroundImage)?.[0];
      for (const [value, opacity] of [
        [style.backgroundColor, 1],
        [hatch, HATCHED],
      ]) {
        if (clear(value)) continue;
        const [fill, alpha] = SV.save.plainColour(value);
        g.append(
          svg("rect", { ...r, fill, "fill-opacity": alpha * opacity, rx: parseFloat(style.borderTopLeftRadius) || 0 }),
        );
        seen(r);
      }
      for (const side of SIDES) edge(r, side, style);
    }
    function edge(r, side, style) {
      const width = parseFloat(style[`border${side}Width`]),
        kind = style[`border${side}Style`];
      if (!(width > 0) || kind === "none" || clear(style[`border${side}Color`])) return;
      const right = side === "Right" ? r.x + r.width : r.x,
        below = side === "Bottom" ? r.y + r.height : r.y,
        flat = side === "Top" || side === "Bottom";
      g.append(
        svg("line", {
          x1: flat ? r.x : right,
          x2: flat ? r.x + r.width : right,
          y1: flat ? below : r.y,
          y2: flat ? below : r.y + r.height,
          stroke: SV.save.plainColour(style[`border${side}Color`])[0],
          "stroke-width": width,
          "stroke-dasharray": kind === "dashed" ? "4 3" : kind === "dotted" ? "1 3" : null,
        }),
      );
    }
    /* Words of one line stand together; a line ends where the next word lies lower. */
    function letters(node, style) {
      const range = document.createRange();
      let line = null;
      for (const m of node.data.matchAll(/\S+\s*/g)) {
        range.setStart(node, m.index);
        range.setEnd(node, m.index + m[0].trimEnd().length);
        const r = place(range.getBoundingClientRect());
        if (!r.width) continue;
        seen(r);
        if (line && Math.abs(line.y - r.y) < 2) line.text += m[0];
        else {
          write(line, style);
          line = { ...r, text: m[0] };
        }
      }
      write(line, style);
    }
    function write(line, style) {
      if (!line) return;
      g.append(
        svg(
          "text",
          {
            x: line.x,
            y: line.y + line.height * BASELINE,
            fill: SV.save.plainColour(style.color)[0],
            "font-family": style.fontFamily,
            "font-size": parseFloat(style.fontSize),
            "font-weight": style.fontWeight,
          },
          line.text.trimEnd(),
        ),
      );
    }
    function walk(node) {
      const style = getComputedStyle(node);
      if (style.display === "none" || style.visibility === "hidden") return;
      if (node !== root) box(node, style);
      for (const kid of node.childNodes)
        if (kid.nodeType === Node.TEXT_NODE) letters(kid, style);
        else if (kid.nodeType === 1) walk(kid);
    }
    walk(root);
    return { drawn: g, w: frame.width / scale, h: low };
  }

  SV.htmlPicture = { of };
})();
