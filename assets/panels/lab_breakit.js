/* Lab: classic mistakes of implementations, and what catches them. Each is one request to the server. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, count } = SpecViz.dom;
  const K = P.kit;
  const { verdict, places } = P.ask;

  function breakit(env) {
    const tell = K.status(),
      list = el("div", { class: "pn-choices" }),
      out = el("div");
    const root = el(
      "div",
      { class: "pn-view" },
      K.head(
        "Break it",
        K.lead(
          "Six mistakes that real implementations have made. Put one in and see which check notices. The " +
            "text often still looks fine.",
        ),
      ),
      el("div", { class: "pn-two" }, el("div", null, list, tell.root), el("div", { class: "pn-box" }, out)),
    );
    out.append(
      el(
        "div",
        { class: "pn-idle" },
        verdict(null, "Nothing broken yet"),
        "Choose a mistake. The engine runs with it: greedily against plain decoding, then many times by " +
          "sampling against the target's distribution.",
      ),
    );
    let asked = false;
    async function ask() {
      asked = true;
      const got = await K.request(env.ctx, "mistakes", {}, { tell, busy: "Fetching the list\u2026" });
      if (got === null) {
        list.replaceChildren(K.button("Try again", ask));
        return;
      }
      const all = Array.isArray(got) ? got.filter((m) => m && typeof m.key === "string").slice(0, 20) : [];
      list.replaceChildren(
        ...[...all, { key: "none", title: "No mistake", why: "For comparison: both checks should stay green." }].map(
          (m) => {
            const press = el(
              "button",
              {
                type: "button",
                class: "pn-choice",
                "aria-pressed": "false",
                "data-key": m.key,
                on: { click: () => go(m.key, press) },
              },
              el("b", null, K.say(m.title || m.key, 160)),
              m.key === "none" ? el("span", null, m.why) : null,
            );
            return press;
          },
        ),
      );
    }
    async function go(key, press) {
      for (const b of list.children) {
        b.setAttribute("aria-pressed", String(b === press));
        b.disabled = true;
      }
      const paint = (x) => out.replaceChildren(...show(x));
      if (env.panel.root.classList.contains("mid"))
        out.parentElement.scrollIntoView({ block: "nearest" }); /* one column: the verdicts are below the list */
      const got = await K.request(
        env.ctx,
        "break_it",
        { mistake: key },
        { tell, busy: "Running with the mistake in it\u2026", part: paint },
      );
      for (const b of list.children) b.disabled = false;
      if (got) paint(got);
      press.focus({ preventScroll: true });
    }
    function show(got) {
      const g = got.greedy,
        d = got.distribution,
        status = g && typeof g === "object" ? g.status : null;
      const same = status === "identical" || status === "near_tie" ? true : status === "diverged" ? false : null,
        p = d && K.finite(d.p_value) ? d.p_value : null;
      const distribution = !d
        ? null
        : d.verdict === "pass"
          ? true
          : d.verdict === "fail"
            ? false
            : d.verdict
              ? null
              : p === null
                ? null
                : p >= 1e-3;
      const odds =
        p === null ? "" : `${K.finite(d.samples) ? count(d.samples, "sample") + ", " : ""}p = ${SpecViz.dom.f3(p)}`;
      return [
        el("h3", null, K.say(got.title, 160)),
        got.why ? el("p", { class: "pn-prose" }, K.say(got.why, 800)) : null,
        el("h4", null, "Greedy certificate"),
        verdict(
          same,
          same === null
            ? status
              ? "Not run"
              : "Waiting"
            : !same
              ? "The text differs from plain decoding"
              : status === "near_tie"
                ? "Same text up to a near-tie"
                : "Same text as plain decoding",
          g && typeof g === "object" ? K.say(g.detail || "", 300) : "",
        ),
        el("h4", null, "Distribution test"),
        verdict(
          distribution,
          distribution === null
            ? d
              ? d.verdict === "few"
                ? SpecViz.messages.say("samples.few")
                : "Still drawing"
              : "Waiting"
            : distribution
              ? "The counts fit the target's distribution"
              : "The counts do not fit the target's distribution",
          d && d.verdict === "few" ? K.say(d.said || "", 400) : odds,
        ),
        d
          ? places(d.places, () =>
              SpecViz.save.own(SpecViz.messages.say("breakit.source", { title: K.say(got.title, 160) }) + odds),
            )
          : null,
        got.verdict ? el("p", { class: "pn-sum" }, K.say(got.verdict, 300)) : null,
      ].filter(Boolean);
    }
    return {
      root,
      update() {
        if (!asked) ask();
      },
      destroy() {},
    };
  }

  (P.views = P.views || {}).breakit = breakit;
})();
