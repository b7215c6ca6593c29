/* The lesson's own card: it floats over the board, says one thing at a time, and moves the board. On a phone it is a sheet at
   the lower edge. One at a time; Escape closes it. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText } = SpecViz.dom;
  const K = P.kit;
  let open = null;

  function start(env, key) {
    close();
    const track = P.lessons.tracks.find((t) => t.key === key);
    const title = el("h3", { tabindex: "-1" }),
      text = el("p", { class: "pn-prose" }),
      extra = el("div"),
      bar = el(
        "span",
        { class: "pn-steps", "aria-hidden": "true" },
        track.steps.map(() => el("i")),
      );
    const number = el("span", { class: "pn-small" }),
      back = K.button("Back", () => go(i - 1)),
      next = K.button("Next", () => (i + 1 < track.steps.length ? go(i + 1) : close(true)), "primary");
    const shut = el(
      "button",
      { type: "button", class: "pn-x", "aria-label": "End the lesson", on: { click: () => close(true) } },
      "\u00d7",
    );
    const root = el(
      "div",
      {
        class: "sv svp pn-lesson",
        role: "dialog",
        "aria-label": "Lesson: " + track.title,
        on: {
          keydown: (e) => {
            if (e.key === "Escape") close(true);
            e.stopPropagation();
          },
        },
      },
      el("div", { class: "pn-lessontop" }, el("b", null, track.title), number, shut),
      bar,
      el("div", { class: "pn-lessonbody" }, title, text, extra),
      el("div", { class: "pn-row" }, back, next),
    );
    (env.panel.root.closest(".gradio-container") || document.body).append(root);
    let i = 0;
    open = {
      root,
      env,
      from: document.activeElement,
      back: "learn",
      go: (k) => go(k),
      get step() {
        return i;
      },
      track,
    };
    /* A step that needs another kind of trace than the one on the board opens a shipped recording first. */
    async function openRecording(step) {
      const { ask, board, opened } = env.ctx;
      if (!step.sampled || step.ready(env.lanes()) || typeof ask !== "function" || !board?.load) return;
      try {
        const { name } = (await ask("library", {})).find((row) => row.temperature > 0),
          why = board.load(await ask("library_trace", { name }));
        if (!why) opened?.(name);
      } catch {
        return; /* the step says where to find it */
      }
      if (open && open.root === root && track.steps[i] === step) show(step);
    }
    function go(k) {
      i = K.clamp(k, 0, track.steps.length - 1);
      show(track.steps[i]);
      openRecording(track.steps[i]);
    }
    function show(step) {
      const lanes = env.lanes(),
        to = step.find(lanes),
        tab = step.layout || (to ? "watch" : null);
      setText(title, step.title);
      setText(
        text,
        lanes.length || step.quiet
          ? step.say(lanes)
          : "There is no trace on the board. Open one in the Traces tab, then come back.",
      );
      setText(number, `${i + 1} of ${track.steps.length}`);
      [...bar.children].forEach((b, n) => b.classList.toggle("on", n <= i));
      back.disabled = i === 0;
      setText(next, i + 1 < track.steps.length ? "Next" : "Done");
      extra.replaceChildren(
        step.widget ? P.samplingGame.widget() : "",
        step.link
          ? K.button(step.link[2], () => {
              env.go(step.link[0]);
              document.dispatchEvent(
                new CustomEvent("specviz:show", { detail: { kind: step.link[0], view: step.link[1] } }),
              );
            })
          : "",
      );
      if (tab) env.ctx.go?.(tab);
      if (to && env.ctx.board) {
        env.ctx.board.pause?.();
        env.ctx.board.setLayout?.(step.layout || "watch");
        const sheet = globalThis.innerWidth <= 640; /* there a selection would open the inspector under this card */
        env.ctx.board.goto?.(
          sheet
            ? { lane: to.lane, round: to.round, phase: to.phase }
            : { ...to, show: "node" in to, ...(step.tab ? { tab: step.tab } : {}) },
        );
        if (step.play) env.ctx.board.play?.();
      }
      title.focus({ preventScroll: true });
    }
    go(0);
    return open;
  }

  function close(back) {
    if (!open) return;
    const { root, env, from, back: home } = open;
    open = null;
    root.remove();
    if (back) {
      env.ctx.board?.pause?.();
      env.ctx.go?.(home);
      if (from && from.isConnected) from.focus?.({ preventScroll: true });
    }
  }

  Object.assign(P.lessons, { start, close, current: () => open });
})();
