/* A page that rests. Gradio's marks of loading count the seconds anew with every frame that the screen can show, where they
   are hidden as here, too; the first one goes on for ever once the page stands. Sixty frames a second are then made of nothing,
   on the cores on which the engine computes. A clock of that kind (seconds since a beginning) is asked once a second; all other
   callers of requestAnimationFrame get their frame. It must stand before Gradio's own script, which keeps the function
   (head_script.py). */
(() => {
  const own = /** @type {typeof requestAnimationFrame & {still?: Function}} */ (globalThis.requestAnimationFrame),
    CLOCK = /\(\s*performance\.now\(\)\s*-[^/]{1,40}\)\s*\/\s*1(e3|000)\b/;
  if (!own || own.still) return;
  const clock = (f) => {
    const text = typeof f === "function" ? Function.prototype.toString.call(f) : "";
    return text.length < 200 && CLOCK.test(text);
  };
  function requestAnimationFrame(f) {
    if (!clock(f)) return own.call(globalThis, f);
    setTimeout(() => f(performance.now()), 1000);
    return 0;
  }
  requestAnimationFrame.still = own;
  globalThis.requestAnimationFrame = requestAnimationFrame;
})();
