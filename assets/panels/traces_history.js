/* Traces: the visitor's own runs, kept in this browser. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el } = SpecViz.dom;
  const K = P.kit;

  function history(env) {
    const list = el("div", { class: "pn-shelf one" }),
      tell = K.status();
    const clear = K.button(
      "Forget all",
      () => {
        P.history.clear();
      },
      "quietly",
    );
    const root = el(
      "div",
      { class: "pn-view" },
      K.head("Your runs", K.lead("The last runs of this browser, kept in this browser. Nothing is sent anywhere.")),
      list,
      el("div", { class: "pn-row" }, clear, tell.root),
    );
    const when = (iso) => {
      const d = new Date(iso);
      return Number.isNaN(d.getTime())
        ? ""
        : d.toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
    };
    function fill() {
      const all = P.history.read();
      clear.hidden = !all.length;
      list.replaceChildren(
        ...(all.length
          ? all.map((x) =>
              el(
                "div",
                { class: "pn-run" },
                el(
                  "button",
                  {
                    type: "button",
                    class: "pn-choice",
                    on: { click: () => tell.set(P.io.openText(env, x.text, ""), "error") },
                  },
                  el("b", null, el("bdi", null, K.say(x.prompt, 120) || "Without a prompt")),
                  el("span", null, (Array.isArray(x.methods) ? x.methods : []).map((m) => K.say(m, 60)).join(", ")),
                  el("small", null, `${when(x.at)}, ${P.io.size(x.text.length)}`),
                ),
                el(
                  "button",
                  {
                    type: "button",
                    class: "pn-x",
                    "aria-label": "Forget this run",
                    on: { click: () => P.history.forget(x.id) },
                  },
                  "\u00d7",
                ),
              ),
            )
          : [
              el(
                "div",
                { class: "pn-idle" },
                el("b", null, SpecViz.messages.say("history.empty")),
                "Press Run on the Watch tab; what it writes is kept here, up to a dozen.",
              ),
            ]),
      );
    }
    document.addEventListener("specviz:history", fill);
    return { root, update: fill, destroy: () => document.removeEventListener("specviz:history", fill) };
  }

  (P.views = P.views || {}).history = history;
})();
