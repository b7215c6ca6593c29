/* On a phone the round inspector is a sheet at the bottom of the screen: a line to peek at, pulled or tapped open. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { setAttr } = SV.dom;

  class Sheet {
    constructor(inspector) {
      this.root = inspector.root;
      this.grip = inspector.grip;
      this.up = false;
      this.grip.addEventListener("click", () => {
        if (!this.pulled) this.open(!this.up);
        this.pulled = false;
      });
      inspector.head.addEventListener("click", () => {
        if (this.root.closest(".narrow")) this.open(!this.up);
      });
      this.root.addEventListener("keydown", (e) => {
        if (e.key === "Escape" && this.up && this.root.closest(".narrow")) {
          this.open(false);
          this.grip.focus();
          e.stopPropagation();
        }
      });
      this.pull();
      this.open(false);
    }
    pull() {
      let y = null;
      this.grip.addEventListener("pointerdown", (e) => {
        y = e.clientY;
        this.pulled = false;
        this.grip.setPointerCapture(e.pointerId);
      });
      this.grip.addEventListener("pointermove", (e) => {
        if (y === null || Math.abs(e.clientY - y) < 24) return;
        this.open(e.clientY < y);
        this.pulled = true;
        y = null;
      });
      for (const name of ["pointerup", "pointercancel"])
        this.grip.addEventListener(name, () => {
          y = null;
        });
    }
    open(up) {
      this.up = Boolean(up);
      this.root.classList.toggle("up", this.up);
      setAttr(this.grip, "aria-expanded", String(this.up));
    }
    /* It is there only while the board is on the screen. */
    watch(board) {
      this.seen = new IntersectionObserver(([e]) => this.root.classList.toggle("away", !e.isIntersecting));
      this.seen.observe(board);
    }
    stop() {
      this.seen?.disconnect();
    }
  }

  SV.sheet = { Sheet };
})();
