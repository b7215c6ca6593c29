/* Presenter mode: the board alone, as large as the screen allows, driven by the keyboard. Everything on the page that is
   not on the way to the board rests, and of the board itself what a lecture has no use for (.presenting); leaving puts it
   all back. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el } = SpecViz.dom;
  const K = P.kit;
  const KEYS = [
    ["Space", "play or pause"],
    ["\u2190 \u2192", "round by round"],
    ["Shift \u2190 \u2192", "inside a round"],
    ["Home End", "first and last round"],
    ["[ ]", "slower, faster"],
    ["+ \u2212", "larger, smaller"],
    ["Esc", "leave"],
  ];
  const WIDE = 1000;
  let on = null;

  const boardOf = (ctx) =>
    (ctx.board && ctx.board.board && ctx.board.board.root) || document.querySelector("#board .sv") || null;

  function start(ctx) {
    if (on) return on;
    ctx.go?.("watch");
    const root = boardOf(ctx);
    if (!root) return null;
    P.lessons?.close?.();
    const rested = [],
      top = root.closest(".gradio-container") || document.body;
    for (let x = root; x && x !== top; x = x.parentElement)
      for (const s of x.parentElement ? x.parentElement.children : [])
        if (s !== x && !["SCRIPT", "STYLE", "LINK"].includes(s.tagName) && s.style.display !== "none") {
          rested.push([s, s.style.display]);
          s.style.setProperty("display", "none", "important");
        }
    const leave = el(
      "button",
      { type: "button", class: "svp pn-leave", "aria-label": "Leave the presentation (Escape)", on: { click: stop } },
      "\u00d7",
    );
    top.prepend(leave);
    root.classList.add("presenting");
    ctx.board?.board?.retheme();
    on = { ctx, root, rested, leave, was: root.style.zoom, own: false, full: false };
    fit();
    if (root.classList.contains("handheld")) ctx.board?.goto?.({ tab: "token" }); /* the reason, not an earlier tab */
    addEventListener("resize", fit);
    document.addEventListener("keydown", key, true);
    document.addEventListener("fullscreenchange", left);
    const full = document.documentElement.requestFullscreen;
    if (typeof full === "function")
      Promise.resolve(full.call(document.documentElement))
        .then(() => {
          if (on) on.full = true;
        })
        .catch(() => {});
    ctx.board?.play?.();
    return on;
  }
  /* As large as two columns allow (WIDE units). A phone shows the text and one reason, without zoom (.handheld); where it
     lies on its side, the text stands beside the strip (.across). */
  function fit() {
    if (!on) return;
    const phone = innerWidth <= 640 || innerHeight <= 480;
    on.root.classList.toggle("handheld", phone);
    on.root.classList.toggle("across", phone && innerWidth > innerHeight);
    if (on.own) return;
    on.root.style.zoom = "1";
    on.zoom = phone ? 1 : K.clamp(on.root.clientWidth / WIDE, 1, 2.4);
    on.root.style.zoom = String(on.zoom);
    if (phone) return;
    /* one screen: what is larger than it is drawn smaller, and larger letters break lines elsewhere */
    for (let i = 0; i < 4; i++) {
      const high = document.documentElement.scrollHeight;
      if (high <= innerHeight) return;
      on.zoom = Math.max(1, (on.zoom * innerHeight) / high - 0.01);
      on.root.style.zoom = String(on.zoom);
    }
  }
  const left = () => {
    if (on && on.full && !document.fullscreenElement) stop();
  };
  function key(e) {
    if (!on || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "Escape") {
      e.preventDefault();
      e.stopPropagation();
      stop();
    } else if (e.key === "+" || e.key === "=") size(0.1);
    else if (e.key === "-") size(-0.1);
  }
  function size(by) {
    on.own = true;
    on.zoom = K.clamp(Math.round((on.zoom + by) * 20) / 20, 0.7, 2.5);
    on.root.style.zoom = String(on.zoom);
  }
  function stop() {
    if (!on) return;
    const { root, rested, leave, was, ctx, full } = on;
    on = null;
    document.removeEventListener("keydown", key, true);
    document.removeEventListener("fullscreenchange", left);
    for (const [s, display] of rested) s.style.display = display;
    removeEventListener("resize", fit);
    root.style.zoom = was;
    root.classList.remove("presenting", "handheld", "across");
    ctx.board?.board?.retheme();
    leave.remove();
    if (full && document.fullscreenElement) document.exitFullscreen().catch(() => {});
    ctx.board?.pause?.();
  }

  function view(env) {
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Present",
        K.lead(
          "For a lecture: the board alone, in large type, with nothing else on the screen. It plays the " +
            "recording that is on the board, and needs no network.",
        ),
      ),
      el(
        "div",
        { class: "pn-row" },
        K.button("Start presenting", () => start(env.ctx), "primary"),
      ),
      el(
        "div",
        { class: "pn-box" },
        el("h3", null, "Keys"),
        el(
          "dl",
          { class: "pn-keysheet" },
          KEYS.map(([k, what]) =>
            el(
              "div",
              null,
              el(
                "dt",
                null,
                k.split(" ").map((x) => el("kbd", null, x)),
              ),
              el("dd", null, what),
            ),
          ),
        ),
      ),
      K.small(
        "To show one round to a class, copy its link in the Traces tab: it opens in the same place on every phone.",
      ),
    );
    return { root, update() {}, destroy: stop };
  }

  (P.views = P.views || {}).present = view;
  P.present = { start, stop, on: () => on };
})();
