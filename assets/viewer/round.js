/* One plain sentence about a round, and the token that is selected first. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;

  const th = (n) => n + (n % 100 >= 11 && n % 100 <= 13 ? "th" : ["th", "st", "nd", "rd"][n % 10] || "th");

  function served(r) {
    const size = r.lens.find((x) => x.kind === "message")?.data?.tokens;
    return Number.isInteger(size)
      ? "One message of the server: " + count(size, "token") + "."
      : "One message of the server; the number of its tokens is not reported.";
  }

  /* "The draft guessed 4 tokens; the target kept 3 and corrected the 4th." */
  function sentence(lane, r, phase) {
    if (SV.serverFacts.is(lane)) return served(r);
    const n = r.nodes.filter((x) => !x.probe).length,
      tree = r.kind === "tree",
      copied = r.nodes.some((x) => x.src);
    if (!n && SV.output.of(lane).grids) {
      const patches = r.commit ? count(r.commit.n_new, "patch", "patches") : "a scale";
      return SV.messages.say(r.commit && r.why === "small" ? "round.scale.small" : "round.scale.large", { patches });
    }
    if (!n) {
      if (SV.metrics.isBaseline(lane)) return "Plain decoding: one target pass, one token.";
      return r.commit && r.why === "small"
        ? "The small model wrote this token alone."
        : "Nothing was drafted this time: one target pass, one token.";
    }
    const guess =
      (copied ? "The draft copied " : "The draft guessed ") + count(n, "token") + (tree ? " as a tree" : "");
    if (phase < 2) return guess + ".";
    if (phase < 3) return guess + "; the target reads all of them in one pass.";
    const kept = r.commit ? r.path.length : [...r.judges.values()].filter((j) => j.verdict === "accepted").length;
    if (!r.commit || phase < 4) return guess + "; the target kept " + (kept || "none") + ".";
    const from =
      ": " +
      count(r.commit.n_new ?? kept + 1, "token") +
      (r.passes > 1 ? SV.messages.say("round.passes", { passes: String(r.passes) }) : SV.messages.say("round.pass"));
    if (r.why === "bonus")
      return (
        guess +
        "; the target kept " +
        (tree ? "a path of " + kept : n === 1 ? "it" : "all " + n) +
        " and added one of its own" +
        from
      );
    if (r.why === "correction") {
      if (!kept)
        return (
          guess +
          "; the target rejected " +
          (n === 1 ? "it" : tree ? "every first guess" : "the first") +
          " and wrote its own token instead."
        );
      return (
        guess +
        "; the target kept " +
        (tree ? "a path of " + kept + " and corrected the next" : kept + " and corrected the " + th(kept + 1)) +
        from
      );
    }
    if (r.why === "accepted")
      return guess + "; the target kept " + (r.commit.n_new ?? kept + 1) + " and added nothing.";
    return guess + "; the target kept " + (kept || "none") + from;
  }

  function defaultSel(r, phase) {
    if (!r) return null;
    if (!r.nodes.some((n) => !n.probe)) return "tail";
    if (phase >= 3) {
      /* the refusal that ended the round, else the first one */
      const no = r.tests.filter((id) => r.judges.get(id).verdict === "rejected"),
        end = r.path.length ? r.path[r.path.length - 1] : -1;
      const here = r.commit ? no.filter((id) => r.nodes[id].parent === end).pop() : undefined;
      if (here !== undefined || no.length) return here ?? no[0];
    }
    return phase >= 3 && r.path && r.path.length ? r.path[r.path.length - 1] : phase >= 4 ? "tail" : 0;
  }

  SV.round = { sentence, defaultSel };
})();
