/* A picture by scales: which model painted each, with how many patches, how sure it was, and what that cost. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { nums, num, int, word, say, bars, short } = SV.pictures;
  const { count, span } = SV.dom;
  const small = (d) => word(d && d.writer) === "small";

  function draw(host, notes, c) {
    const d = notes[notes.length - 1] || {},
      grid = Math.min(64, Math.max(0, int(d.grid, 0))),
      probs = nums(d.probs, 4096),
      past = c.history().map(({ data }) => data || {}),
      name = (one) => int(one.grid, 0) + "\u00d7" + int(one.grid, 0);
    host.append(
      say(
        `Scale ${int(d.scale, 0) + 1} of ${int(d.of, 0)}: ${count(grid * grid, "patch", "patches")} in one pass of `,
        small(d) ? "the small model" : "the large model",
        ` (${short(num(d.parameters, 0) / 1e6)} M parameters, ${span(num(d.seconds, 0))}). Nothing was verified.`,
      ),
    );
    bars(host, {
      name: "Probability of each patch that was drawn",
      width: c.width,
      values: probs.slice(0, 64),
      labels: probs.slice(0, 64).map((_, i) => String(i + 1)),
      most: 1,
      height: 104,
    });
    if (past.length > 1)
      bars(host, {
        name: "Seconds of each scale's pass; marked: the small model",
        width: c.width,
        values: past.map((one) => num(one.seconds, 0)),
        labels: past.map(name),
        mark: (i) => small(past[i]),
        height: 104,
      });
    bars(host, {
      name: "Keys and values held after each scale, in kB; marked: the small model",
      width: c.width,
      values: past.map((one) => num(one.kv_bytes, 0) / 1000),
      labels: past.map(name),
      mark: (i) => small(past[i]),
      height: 104,
    });
  }

  SV.lens.scale = { title: "Who painted this scale", draw };
})();
