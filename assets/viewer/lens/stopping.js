/* When did the draft stop? Its sureness, or its entropy, token by token against the limit; and how the limit moved. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { nums, num, say, bars, line, short } = SV.pictures;

  function threshold(host, notes, c) {
    const limit = num((notes[0] || {}).value, 0),
      nodes = c.round.nodes.filter((n) => !n.probe && n.q !== null);
    host.append(say("Drafting goes on while the draft is at least " + short(limit) + " sure of its token."));
    bars(host, {
      name: "The draft's probability of each token",
      width: c.width,
      values: nodes.map((n) => n.q),
      labels: nodes.map((n) => c.label(n.tok, 8)),
      cls: (i) => c.verdict(nodes[i].id),
      limit,
      limitName: "limit " + short(limit),
      most: 1,
    });
    const past = c.history().map(({ round, data }) => [round, num(data && data.value, 0)]);
    if (new Set(past.map((p) => p[1])).size > 1) {
      host.append(say("The limit is learned: it moves after each round."));
      line(host, {
        name: "The limit over the rounds",
        width: c.width,
        series: [{ points: past, end: short(limit) }],
        most: 1,
        height: 96,
      });
    }
  }
  function entropy(host, notes, c) {
    const d = notes[0] || {},
      values = nums(d.line, 64),
      limit = num(d.limit, 0);
    host.append(
      say(
        values.length
          ? "The draft wrote until its own doubt, the root of its entropy, rose above " + short(limit) + "."
          : "Nothing was drafted in this round.",
      ),
    );
    bars(host, {
      name: "Doubt of the draft, token by token",
      width: c.width,
      values,
      labels: values.map((_, i) => String(i + 1)),
      limit,
      limitName: "limit " + short(limit),
      mark: (i) => values[i] > limit,
    });
  }

  function predicted(host, notes, c) {
    const d = notes[0] || {},
      values = nums(d.line, 64),
      refused = nums(d.refused, 64),
      joint = Array.isArray(d.refused),
      survival = d.survival === true,
      limit = num(d.limit, 0),
      nodes = c.round.nodes.filter((n) => !n.probe);
    if (!values.length) {
      host.append(say("No drafted token was judged in this round."));
      return;
    }
    host.append(
      say(
        joint
          ? "The head's chance for each token, coloured by what became of it. The newest token is not judged yet."
          : survival
            ? "The expected survival of each drafted token: that it and all before it are accepted. " +
              (limit > 0 ? "Below " + short(limit) + " it is not verified." : "All are verified.")
            : "The classifier's chance for each token, coloured by what became of it. Below " +
              short(limit) +
              " it stops.",
      ),
    );
    bars(host, {
      name: survival ? "Expected survival, token by token" : "Predicted chance of acceptance, token by token",
      width: c.width,
      values,
      labels: values.map((_, i) => (nodes[i] ? c.label(nodes[i].tok, 8) : String(i + 1))),
      cls: (i) => (nodes[i] ? c.verdict(nodes[i].id) : ""),
      limit: joint || (survival && !limit) ? undefined : limit,
      limitName: joint ? "" : "limit " + short(limit),
      most: 1,
    });
    if (!joint) return;
    host.append(say("It drafts on while a refusal so far is less likely than " + short(limit) + "."));
    bars(host, {
      name: "Predicted chance that something was rejected",
      width: c.width,
      values: refused,
      labels: refused.map((_, i) => String(i + 1)),
      limit,
      limitName: "limit " + short(limit),
      mark: (i) => refused[i] > limit,
      most: 1,
    });
  }

  SV.lens.predicted = { title: "Predicted acceptance", draw: predicted };
  SV.lens.threshold = { title: "Sureness and its limit", draw: threshold };
  SV.lens.entropy = { title: "Doubt and its limit", draw: entropy };
})();
