/* One network, several sizes: which of them wrote each token, how sure it was, and how often the larger ones were asked. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { nums, ints, num, say, bars, strip, short } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      layers = ints(d.layers, 16),
      used = ints(d.used, 64),
      sure = nums(d.sure, 64),
      least = num(d.least, 0),
      nodes = c.round.nodes.filter((n) => !n.probe),
      name = (at) => (layers[at] === undefined ? "?" : count(layers[at], "layer"));
    host.append(
      say(
        least > 0
          ? "The smallest size speaks first; where it is less than " + short(least) + " sure, the next one does."
          : "One size wrote every token: " + name(used[0]) + " of " + (layers[layers.length - 1] ?? "?") + ".",
      ),
    );
    strip(
      host,
      used.map((at, i) => ({
        text: nodes[i] ? c.label(nodes[i].tok, 12) : "not sent",
        cls: nodes[i] ? c.verdict(nodes[i].id) : "skipped",
        node: nodes[i] ? nodes[i].id : undefined,
        note: name(at),
      })),
      "The size that wrote each token",
    );
    bars(host, {
      name: "How sure the size that wrote it was",
      width: c.width,
      values: sure,
      labels: used.map((at) => String(layers[at] ?? "?")),
      cls: (i) => (nodes[i] ? c.verdict(nodes[i].id) : ""),
      limit: least > 0 ? least : undefined,
      limitName: least > 0 ? "limit " + short(least) : "",
      most: 1,
    });
    const share = layers.map(() => 0);
    for (const { data } of c.history()) for (const at of ints(data && data.used, 64)) if (at in share) share[at] += 1;
    const all = share.reduce((a, b) => a + b, 0);
    if (all && layers.length > 1) {
      host.append(say("Share of all tokens so far that each size has written, by its layers."));
      bars(host, {
        name: "Tokens that each size has written so far",
        width: c.width,
        values: share.map((n) => n / all),
        labels: layers.map((n) => String(n)),
        most: 1,
        height: 104,
      });
    }
  }

  SV.lens.sizes = { title: "Sizes inside the draft", draw };
})();
