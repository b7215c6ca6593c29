/* Pan and zoom of the draft tree: the box scrolls by itself, so zooming is only another size of the picture. Ctrl and wheel,
   drag, buttons, and plus, minus, nought on the keyboard. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText } = SV.dom;
  const LEAST = 0.3,
    MOST = 3;

  class Zoom {
    /* box: what scrolls; all(): asks for every node, or for the telling ones again. */
    constructor(box, all) {
      this.box = box;
      this.scale = 1;
      this.w = this.h = 1;
      const key = (name, label, f) =>
        el(
          "button",
          { "aria-label": label, title: label, "data-zoom": name, on: { click: f } },
          { in: "+", out: "\u2212", fit: "fit" }[name],
        );
      this.all = el("button", { class: "all", "data-zoom": "all", "aria-pressed": "false", on: { click: all } });
      this.keys = el(
        "div",
        { class: "zoomkeys", role: "group", "aria-label": "Size of the tree" },
        this.all,
        key("out", "Smaller (-)", () => this.by(0.8)),
        key("fit", "Fit (0)", () => this.fit()),
        key("in", "Larger (+)", () => this.by(1.25)),
      );
      this.listen();
    }
    listen() {
      const box = this.box;
      box.addEventListener(
        "wheel",
        (e) => {
          if (!e.ctrlKey && !e.metaKey) return;
          e.preventDefault();
          const b = box.getBoundingClientRect();
          this.by(
            Math.exp(-Math.sign(e.deltaY) * Math.min(60, Math.abs(e.deltaY)) * 0.005),
            e.clientX - b.left,
            e.clientY - b.top,
          );
        },
        { passive: false },
      );
      let from = null;
      box.addEventListener("pointerdown", (e) => {
        if (e.pointerType === "mouse" && e.button === 0)
          from = { x: e.clientX, y: e.clientY, l: box.scrollLeft, t: box.scrollTop, moved: false };
      });
      box.addEventListener("pointermove", (e) => {
        if (!from) return;
        const dx = e.clientX - from.x,
          dy = e.clientY - from.y;
        if (!from.moved && Math.abs(dx) + Math.abs(dy) < 5) return;
        if (!from.moved) {
          from.moved = true;
          box.setPointerCapture(e.pointerId);
          box.classList.add("held");
        }
        box.scrollLeft = from.l - dx;
        box.scrollTop = from.t - dy;
      });
      for (const name of ["pointerup", "pointercancel"])
        box.addEventListener(name, () => {
          from = null;
          box.classList.remove("held");
        });
    }

    /* A new picture takes the size it is asked for; `many`: how many nodes there are, `drawn`: how many of them are in it. */
    take(svg, { many, drawn, every, fresh }) {
      this.svg = svg;
      [this.w, this.h] = ["width", "height"].map((name) => Number(svg.getAttribute(name)) || 1);
      this.all.hidden = many <= drawn && !every;
      setText(this.all, every ? "fewer nodes" : "all " + many + " nodes");
      this.all.setAttribute("aria-pressed", String(Boolean(every)));
      if (fresh) this.scale = 1;
      if (fresh && every) this.fit(0.62);
      else this.apply();
    }
    apply() {
      if (!this.svg) return;
      this.svg.setAttribute("width", Math.ceil(this.w * this.scale));
      this.svg.setAttribute("height", Math.ceil(this.h * this.scale));
    }
    fit(least = LEAST) {
      this.scale = Math.max(
        least,
        Math.min(1, (this.box.clientWidth - 24) / this.w, (this.box.clientHeight - 16) / this.h),
      );
      this.apply();
    }
    by(k, x = this.box.clientWidth / 2, y = this.box.clientHeight / 2) {
      const to = Math.min(MOST, Math.max(LEAST, this.scale * k)),
        f = to / this.scale,
        { scrollLeft: l, scrollTop: t } = this.box;
      if (f === 1) return;
      this.scale = to;
      this.apply();
      this.box.scrollLeft = (l + x) * f - x;
      this.box.scrollTop = (t + y) * f - y;
    }
  }

  SV.zoom = { Zoom };
})();
