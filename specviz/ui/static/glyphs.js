/* Small drawings of a method's round, by their names: what is guessed, and where it comes from. */
const GLYPHS = {
  one: { dots: [[16, 10]], lines: [] },
  chain: {
    dots: [
      [4, 10],
      [12, 10],
      [20, 10],
      [28, 10],
    ],
    lines: ["M4 10H28"],
  },
  tree: {
    dots: [
      [4, 10],
      [16, 4],
      [16, 16],
      [28, 2],
      [28, 8],
      [28, 16],
    ],
    lines: ["M4 10L16 4L28 2M16 4L28 8M4 10L16 16H28"],
  },
  block: { dots: [], lines: ["M3 5H11V15H3ZM12 5H20V15H12ZM21 5H29V15H21Z"] },
  copy: {
    dots: [
      [5, 15],
      [27, 15],
    ],
    lines: ["M3 18H29M5 14C5 1 27 1 27 13"],
  },
  grid: { dots: [], lines: ["M4 3H28V17H4ZM12 3V17M20 3V17M4 10H28"] },
  server: { dots: [[4, 10]], lines: ["M8 10H17M17 3H29V17H17ZM20 7H26M20 13H26"] },
  layers: { dots: [], lines: ["M6 3H26M6 8H26M6 18H26"], faint: ["M6 13H26"] },
};
const NS = "http://www.w3.org/2000/svg";
function glyph(name) {
  const g = GLYPHS[name] || GLYPHS.chain,
    svg = document.createElementNS(NS, "svg");
  const add = (tag, attributes) => {
    const part = document.createElementNS(NS, tag);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    svg.append(part);
  };
  svg.setAttribute("viewBox", "0 0 32 20");
  svg.setAttribute("class", "pg-glyph");
  svg.setAttribute("aria-hidden", "true");
  for (const d of g.lines) add("path", { d });
  for (const d of g.faint || []) add("path", { d, "stroke-dasharray": "2 3" });
  for (const [cx, cy] of g.dots) add("circle", { cx, cy, r: 2.6 });
  return svg;
}
