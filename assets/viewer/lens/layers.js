/* A draft from a part of the target itself: which layers ran, which were left out, which work the target can use again. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, count } = SV.dom;
  const { int, ints, num, nums, say, short, bars } = SV.pictures;

  /* `skipped` lists sublayers: 2 i is the attention of layer i, 2 i + 1 its feed-forward part. */
  function draw(host, notes, c) {
    const d = notes[notes.length - 1] || {},
      n = Math.min(128, Math.max(0, int(d.count, 0))),
      off = new Set(ints(d.skipped, 512)),
      reused = int(d.reused, 0);
    host.append(
      say(
        "The draft ran " +
          count(2 * n - [...off].filter((x) => x < 2 * n).length, "half layer") +
          " of " +
          2 * n +
          ". ",
        reused ? "The first " + count(reused, "layer") + " are not computed again when the target checks. " : "",
        num(d.matched) === null
          ? ""
          : "Agreement while searching: " +
              short(d.matched) +
              (Number.isInteger(d.trials) ? " after " + count(d.trials, "trial") : "") +
              ".",
      ),
    );
    const row = (name, k) => [
      el("span", { class: "lrow" }, name),
      el(
        "span",
        { class: "lcells" },
        Array.from({ length: n }, (_, i) =>
          el("i", {
            class: (off.has(2 * i + k) ? "off" : "ran") + (i < reused ? " reused" : ""),
            title: "layer " + (i + 1) + (off.has(2 * i + k) ? ": skipped" : ": ran"),
          }),
        ),
      ),
    ];
    host.append(
      el(
        "div",
        { class: "llayers", role: "img", "aria-label": "Layers that ran in the draft" },
        row("attention", 0),
        row("feed-forward", 1),
      ),
      say("Filled: ran in the draft. Hollow: skipped. The target runs all of them."),
    );
  }

  /* M2R2: what the adapters add at the exit to what the target itself has there. */
  function residuals(host, notes, c) {
    const d = notes[notes.length - 1] || {},
      values = nums(d.line, 64),
      nodes = c.round.nodes.filter((n) => !n.probe);
    host.append(
      say(
        "After " +
          count(int(d.exit, 0), "layer") +
          " the fast residual ran ahead of the target's own by so many of its lengths. " +
          "Near 0 it adds nothing to an ordinary early exit.",
      ),
    );
    bars(host, {
      name: "How far the fast residual ran ahead, token by token",
      width: c.width,
      values,
      labels: values.map((_, i) => (nodes[i] ? c.label(nodes[i].tok, 8) : String(i + 1))),
      cls: (i) => (nodes[i] ? c.verdict(nodes[i].id) : ""),
    });
  }

  /* EasySpec: the middle layers run in groups, all layers of a group reading the same input; first and last run by themselves. */
  function sideBySide(host, notes, c) {
    const d = notes[notes.length - 1] || {},
      n = Math.min(128, Math.max(0, int(d.layers, 0))),
      size = Math.min(128, Math.max(1, int(d.size, 1)));
    host.append(
      say(
        "The draft's " +
          count(n, "layer") +
          " took " +
          count(int(d.steps, n), "step") +
          " one after the other: the middle ones ran side by side, " +
          size +
          " at a time. Its first token came from an exact pass.",
      ),
    );
    const groups =
      n < 3
        ? Array(n).fill(1)
        : [1, ...Array.from({ length: Math.ceil((n - 2) / size) }, (_, i) => Math.min(size, n - 2 - i * size)), 1];
    host.append(
      el(
        "div",
        { class: "lgroups", role: "img", "aria-label": "Layers that ran side by side" },
        groups.map((g, i) =>
          el(
            "span",
            { title: "step " + (i + 1) + ": " + count(g, "layer") },
            Array.from({ length: g }, () => el("i")),
          ),
        ),
      ),
      say("A column a step, a square a layer."),
    );
  }

  /* MagicDec, QuantSpec: all layers drafted, over a part of their keys and values or over rounded ones. */
  function remembered(host, notes, c) {
    const d = notes[notes.length - 1] || {},
      kept = Math.max(0, int(d.kept, 0)),
      bits = int(d.bits, 0);
    host.append(
      say(
        "The draft read the keys and values of " + kept + " of " + Math.max(kept, int(d.of, kept)) + " tokens",
        bits ? ", the older ones rounded to " + count(bits, "bit") : "",
        ". The check reads all of them as they are.",
      ),
    );
  }

  SV.lens.own_cache = { title: "What the draft remembers", draw: remembered };
  SV.lens.residuals = { title: "Fast residual", draw: residuals };
  SV.lens.layers = { title: "Layers", draw };
  SV.lens.side_by_side = { title: "Layers side by side", draw: sideBySide };
})();
