/* A canvas context that writes SVG: what the board draws on canvases can be saved as lines and letters, sharp at any size.
   Only what the board's own drawings use. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { svg } = SV.dom;
  const ANCHOR = { center: "middle", right: "end", end: "end" };
  let clips = 0;

  class Pen {
    constructor() {
      this.root = this.at = svg("g");
      this.globalAlpha = this.lineWidth = 1;
      this.fillStyle = this.strokeStyle = "#000";
      this.textAlign = "left";
      this.font = "12px sans-serif";
      this.dash = [];
      this.path = "";
      this.stack = [];
    }
    save() {
      const { at, globalAlpha, fillStyle, strokeStyle, lineWidth, dash } = this;
      this.stack.push({ at, globalAlpha, fillStyle, strokeStyle, lineWidth, dash });
    }
    restore() {
      Object.assign(this, this.stack.pop());
    }
    setLineDash(list) {
      this.dash = list;
    }
    put(tag, attrs, ...kids) {
      const seen = this.globalAlpha < 1 ? { opacity: this.globalAlpha } : {};
      this.at.append(svg(tag, { ...attrs, ...seen }, ...kids));
    }
    get line() {
      const dash = this.dash.length ? { "stroke-dasharray": this.dash.join(" ") } : {};
      return { fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth, ...dash };
    }
    fillRect(x, y, width, height) {
      this.put("rect", { x, y, width, height, fill: this.fillStyle });
    }
    strokeRect(x, y, width, height) {
      this.put("rect", { x, y, width, height, ...this.line });
    }
    fillText(text, x, y) {
      const [, weight, size, family] = /^(\d+ )?([\d.]+)px (.*)$/.exec(this.font),
        letters = { "font-weight": (weight || "400").trim(), "font-size": size, "font-family": family };
      this.put("text", { x, y, fill: this.fillStyle, "text-anchor": ANCHOR[this.textAlign], ...letters }, text);
    }
    beginPath() {
      this.path = "";
    }
    rect(x, y, w, h) {
      this.path += `M${x} ${y}h${w}v${h}h${-w}z`;
    }
    roundRect(x, y, w, h, r) {
      r = Math.min(r, w / 2, h / 2);
      const turn = (dx, dy) => `a${r} ${r} 0 0 1 ${dx} ${dy}`;
      this.path += `M${x + r} ${y}h${w - 2 * r}${turn(r, r)}v${h - 2 * r}${turn(-r, r)}`;
      this.path += `h${2 * r - w}${turn(-r, -r)}v${2 * r - h}${turn(r, -r)}z`;
    }
    arc(x, y, r) {
      const half = (way) => `a${r} ${r} 0 1 1 ${way * 2 * r} 0`;
      this.path += `M${x - r} ${y}${half(1)}${half(-1)}z`;
    }
    fill() {
      this.put("path", { d: this.path, fill: this.fillStyle });
    }
    stroke() {
      this.put("path", { d: this.path, ...this.line });
    }
    clip() {
      const id = "sv-clip-" + ++clips,
        inside = svg("g", { "clip-path": `url(#${id})` });
      this.at.append(svg("clipPath", { id }, svg("path", { d: this.path })), inside);
      this.at = inside;
    }
  }

  SV.svgContext = { Pen };
})();
