/* Whether the round's draft was ready before it began, and what was prepared for the next round (SSD). */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { int, say } = SV.pictures;

  function draw(host, notes) {
    const d = notes[0] || {};
    host.append(
      say(
        d.ready === true
          ? "The outcome of the round before was predicted: this draft was ready. "
          : "No prepared draft fitted: this one was drafted when the round began. ",
        count(int(d.dropped, 0), "prepared draft") + " thrown away; ",
        count(int(d.prepared, 0), "draft") + " prepared while the target verified.",
      ),
    );
  }

  SV.lens.outcomes = { title: "Predicted outcomes", draw };
})();
