/* Learn: a searchable card for every method: needs, wins, losses, knobs, and the rounds of the board's trace that show it. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText, count } = SpecViz.dom;
  const K = P.kit;

  const NEEDS = {
    draft: "A small draft model",
    small: "A still smaller draft for the draft",
    tree: "A target that reads trees",
    early: "A target that can stop early",
    skip: "A target that can skip layers",
    head: "The target's output head",
    embed: "The target's embedding",
    kv: "The target's keys and values",
  };
  function needs(card) {
    const list = [...(card.needs || [])].map((n) => {
      const [what, name] = String(n).split(":");
      return (
        NEEDS[n] ||
        (what === "head"
          ? "Trained heads (" + K.say(name, 30) + ")"
          : what === "store"
            ? "A store of text"
            : what === "tap"
              ? "The target's hidden states"
              : NEEDS[what] || K.say(n, 40))
      );
    });
    return list.length ? list.join(", ") : "Nothing but the target";
  }
  const value = (v) => (typeof v === "number" ? String(Number(v.toPrecision(4))) : K.say(v, 40));
  const span = (k) =>
    k.choices && k.choices.length
      ? k.choices.map((c) => K.say(SpecViz.stage.plain(c), 30)).join(", ")
      : K.finite(k.low) && K.finite(k.high)
        ? `${value(k.low)} to ${value(k.high)}`
        : typeof k.default === "boolean"
          ? "on or off"
          : "";
  const hay = (c) => [c.key, c.title, c.family, c.summary, c.paper, c.look].join(" ").toLowerCase();

  function view(env) {
    const cards = (env.ctx.catalogue || []).filter((c) => c && typeof c.key === "string"),
      families = [...new Set(cards.map((c) => c.family))];
    const found = el("p", { class: "pn-small", role: "status" }),
      list = el("div", { class: "pn-mlist" }),
      detail = el("article", { class: "pn-card", tabindex: "-1" });
    const search = K.field({
      label: "Search",
      type: "search",
      most: 80,
      placeholder: "tree, copy, lossless\u2026",
      on: () => fill(),
    });
    const family = K.select({
      label: "Family",
      options: [["", "All families"], ...families.map((f) => [f, f])],
      value: "",
      on: () => fill(),
    });
    const exact = K.select({
      label: "Output",
      options: [["", "Any"], ...[...new Set(cards.map((c) => c.exactness))].map((x) => [x, K.EXACT[x] || x])],
      value: "",
      on: () => fill(),
    });
    const root = el(
      "div",
      { class: "pn-view pn-methods" },
      K.head(
        SpecViz.messages.say("methods.count", { methods: String(SpecViz.metrics.methodsOf(cards).length) }),
        K.lead(
          "All share one frame: something drafts, the target checks. They differ in who guesses, how much, " +
            "and how the guesses are judged.",
        ),
      ),
      el("div", { class: "pn-filters" }, search.root, family.root, exact.root),
      found,
      el("div", { class: "pn-split" }, list, detail),
    );
    let open = null,
      lanes = [],
      off = {};

    function fill() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const hits = cards.filter(
        (c) =>
          (!family.value || c.family === family.value) &&
          (!exact.value || c.exactness === exact.value) &&
          words.every((w) => hay(c).includes(w)),
      );
      setText(
        found,
        hits.length === cards.length
          ? ""
          : hits.length
            ? count(hits.length, "method")
            : SpecViz.messages.say("methods.none"),
      );
      const kids = [];
      let group = null;
      for (const c of hits) {
        if (c.family !== group) {
          group = c.family;
          kids.push(el("h3", null, K.say(group, 60)));
        }
        kids.push(
          el(
            "button",
            {
              type: "button",
              class: "pn-mrow",
              "data-key": c.key,
              "data-off": typeof off[c.key] === "string" ? "" : null,
              "aria-current": String(c === open),
              on: { click: () => pick(c, true) },
            },
            el("b", null, K.say(c.title, 80)),
            el("span", null, K.say(c.summary, 400)),
          ),
        );
      }
      list.replaceChildren(...kids);
      if (!open || !hits.includes(open)) pick(hits.find((c) => c.key === "speculative") || hits[0] || null, false);
    }
    function pick(card, byHand) {
      open = card;
      for (const b of list.querySelectorAll(".pn-mrow"))
        b.setAttribute("aria-current", String(Boolean(card) && b.dataset.key === card.key));
      root.classList.toggle("opened", Boolean(byHand));
      detail.replaceChildren(...(card ? show(card) : []));
      if (byHand) {
        detail.focus({ preventScroll: true });
        if (root.closest(".mid")) root.scrollIntoView({ block: "start" });
      }
    }
    function show(c) {
      const lane = lanes.find((l) => l.key === c.key),
        why = typeof off[c.key] === "string" ? off[c.key] : "",
        part = (title, text) => (text ? [el("h4", null, title), el("p", null, K.say(text, 600))] : []);
      return [
        K.button(
          "All methods",
          () => {
            root.classList.remove("opened");
          },
          "quietly pn-back",
        ),
        el("p", { class: "pn-small" }, K.say(c.family, 60)),
        el("h2", null, K.say(c.title, 80)),
        K.drawing(c.key),
        el("p", { class: "pn-lead" }, K.say(c.summary, 600)),
        el(
          "div",
          { class: "pn-row pn-act" },
          K.badge(c.exactness),
          why ? null : K.button("Try it", () => env.ctx.run?.({ methods: [c.key] }), "primary"),
        ),
        why ? el("p", { class: "pn-nothere" }, el("b", null, "Not on this model. "), K.say(why, 400)) : null,
        el(
          "dl",
          { class: "pn-facts" },
          [
            ["Needs", needs(c)],
            ["Knobs", (c.knobs || []).map((k) => k.name).join(", ") || "None"],
          ].map(([k, v]) => el("div", null, el("dt", null, k), el("dd", null, K.say(v, 200)))),
        ),
        ...part("What to look at", c.look),
        el(
          "div",
          { class: "pn-winlose" },
          el("div", null, part("Wins", c.wins)),
          el("div", null, part("Loses", c.loses)),
        ),
        ...(c.differs ? part("Beside the paper", c.differs) : []),
        ...(c.published && Object.keys(c.published).length
          ? [
              K.small(
                "The paper's knobs: " +
                  K.say(
                    Object.entries(c.published)
                      .map((one) => one.join(" "))
                      .join(", "),
                    300,
                  ) +
                  ".",
              ),
            ]
          : []),
        ...(lane ? seen(lane) : []),
        ...((c.knobs || []).length
          ? [
              el("h4", null, "Knobs"),
              K.table(
                [{ name: "knob" }, { name: "default" }, { name: "range" }, { name: "what it does" }],
                c.knobs.map((k) => [
                  el("code", null, K.say(k.name, 40)),
                  value(k.default),
                  span(k),
                  K.say(k.help, 300),
                ]),
                "Settings of " + K.say(c.title, 80),
              ),
            ]
          : []),
        ...(c.paper ? [el("h4", null, "Source"), el("p", null, K.paper(c.paper))] : []),
      ].filter(Boolean);
    }
    /* The mock's "see it happen": rounds of the trace on the board that show what the card says. */
    function seen(lane) {
      const f = P.finds,
        full = f.full(lane),
        no = f.refused(lane),
        first = lane.rounds.find((r) => r.why === "correction" && !r.path.length);
      const rows = [
        full &&
          full.why === "bonus" && [
            `All ${full.path.length} guesses are kept, and the pass yields one more.`,
            full,
            "tail",
          ],
        no && ["A guess is rejected, and corrected in the same pass.", no, f.rejectedNode(no)],
        first &&
          first !== no && [
            "The first guess fails: one token, at more than the price of a plain step.",
            first,
            f.rejectedNode(first),
          ],
      ].filter(Boolean);
      return rows.length
        ? [
            el("h4", null, "See it happen"),
            el(
              "ol",
              { class: "pn-see" },
              rows.map(([text, r, node]) =>
                el(
                  "li",
                  null,
                  el("span", null, text),
                  K.button(
                    "Show round " + (r.i + 1),
                    () => env.show({ lane: lane.id, round: r.i, phase: 4, node }),
                    "quietly",
                  ),
                ),
              ),
            ),
          ]
        : [];
    }
    fill();
    return {
      root,
      update() {
        const now = env.lanes(),
          again = () => {
            if (open) detail.replaceChildren(...show(open));
          };
        if (now !== lanes) {
          lanes = now;
          again();
        }
        env.off().then((got) => {
          if (got !== off) {
            off = got;
            fill();
            again();
          }
        });
      },
      destroy() {},
      pick: (key) => {
        const c = cards.find((x) => x.key === key);
        if (c) pick(c, true);
      },
    };
  }

  (P.views = P.views || {}).methods = view;
})();
