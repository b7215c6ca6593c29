/* How often a run in flight is painted. Where the engine computes on the same few cores, every painting is taken from it: one
   that is slow is followed by a rest, so that painting keeps to its share of the time. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const MOST = 1500; /* ms that a board may stand still, however slow it is to paint */

  /* The part of one core that may go into painting. */
  const part = (cores) => (cores <= 2 ? 0.1 : cores <= 4 ? 0.3 : 0.5);
  const own = part(globalThis.navigator?.hardwareConcurrency || 4);

  /* ms from the beginning of one painting to that of the next, where one takes so long. */
  const share = (took, of = own) => Math.min(MOST, took / of);

  class PaintRate {
    constructor(of = own) {
      this.of = of;
      this.took = 0;
    }
    /* A painting has begun: it lasts until the browser has laid it out and drawn it, too. */
    begun(at = performance.now()) {
      if (this.waits) return;
      this.waits = true;
      setTimeout(() => {
        this.waits = false;
        this.learn(performance.now() - at);
      });
    }
    learn(ms) {
      this.took += (ms - this.took) * (this.took ? 0.3 : 1);
    }
    beat(least) {
      return Math.max(least, share(this.took, this.of));
    }
  }

  SV.paintRate = { PaintRate, share, part };
})();
