/* A server's lane on the page: its three badges, and the table behind them. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, pct, span, count } = SV.dom;
  const { facts, doubts, BADGES } = SV.serverFacts;
  const MEANS = {
    observed: "The server reported it, or this client's clock measured it.",
    inferred: "It follows from the sizes of the server's messages, if each is what one pass wrote.",
    unknown: "It is not reported, so nothing is drawn in its place.",
  };
  const two = (x) => x.toFixed(2);
  const whole = (x) => String(Math.round(x));
  const places = (list) =>
    list
      .slice(0, 8)
      .map((p) => (Array.isArray(p) ? (p[0] > 0 ? pct(p[1] / p[0]) : "\u2013") : pct(p)))
      .join(", ");
  /* [in words, how its value is written] */
  const NAMES = {
    text: ["the text, and when it came", null],
    tokens: ["tokens written", whole],
    token_ids: ["which tokens were written", null],
    refused_ids: ["which drafted tokens were rejected", null],
    prompt_tokens: ["tokens of the prompt", whole],
    passes: ["passes of the large model", whole],
    steps: ["passes that checked a draft", whole],
    accepted_length: ["tokens a pass", two],
    drafted: ["tokens drafted", whole],
    accepted: ["of them accepted", whole],
    acceptance_rate: ["accepted of the drafted", pct],
    by_position: ["accepted by position, of those examined", places],
    per_step: ["drafted and accepted, pass by pass", (list) => count(list.length, "pass", "passes")],
    own_prefill_seconds: ["reading the prompt, by the server's clock", span],
    own_seconds: ["writing, by the server's clock", span],
    server_accepted_length: ["tokens a pass, whole server", two],
    server_acceptance_rate: ["accepted of the drafted, whole server", pct],
    server_by_position: ["accepted by position, whole server", places],
    server_tokens_per_pass: ["tokens a pass meanwhile, whole server", two],
  };
  const FIRST = [{ name: "text", badge: "observed", value: null }];

  function written(f) {
    const how = NAMES[f.name] && NAMES[f.name][1];
    if (f.value === null || !how) return "";
    try {
      return how(f.value);
    } catch {
      return "";
    }
  }
  const named = (f) => (NAMES[f.name] ? NAMES[f.name][0] : SV.text.joined(SV.text.visible(f.name)));
  const badge = (name, text) => el("span", { class: "badge " + name, title: MEANS[name] }, text ?? name);

  /* One line under a lane's name: what is observed, inferred and unknown. */
  function line(lane) {
    const all = lane.done ? [...FIRST, ...facts(lane)] : FIRST;
    return BADGES.map((name) => {
      const mine = all.filter((f) => f.badge === name);
      if (!mine.length) return null;
      const tip = mine.map((f) => named(f) + (written(f) ? ": " + written(f) : "")).join("; ");
      return el("span", { class: "badge " + name, title: MEANS[name] + " " + tip + "." }, name + " " + mine.length);
    });
  }

  /* Every fact with its badge; while the stream runs, what can be said of any server. */
  function table(lane) {
    const all = lane.done
      ? [...FIRST, ...facts(lane)]
      : [...FIRST, { name: "refused_ids", badge: "unknown", value: null }];
    const rows = BADGES.flatMap((name) => all.filter((f) => f.badge === name)).map((f) =>
      el(
        "tr",
        { "data-fact": f.name },
        el("td", null, badge(f.badge)),
        el("th", { scope: "row" }, named(f)),
        el("td", null, written(f)),
      ),
    );
    const odd = doubts(lane);
    return [
      ...SV.csv.under(el("table", { class: "facts" }, el("tbody", null, rows))),
      odd.length ? el("p", { class: "note" }, SV.messages.say("server.doubts", { doubts: odd.join("; ") })) : null,
    ];
  }

  SV.serverTable = { line, table, badge, MEANS };
})();
