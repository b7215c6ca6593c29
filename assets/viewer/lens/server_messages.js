/* A server's messages: how large they were and when they came, and its passes where it reports them one by one. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el } = SV.dom;
  const { num, int, say, line, bars } = SV.pictures;

  function message(host, notes, c) {
    const d = notes[0] || {},
      size = num(d.tokens),
      past = c.history().map(({ round, data }) => [round, num(data && data.tokens) ?? 1]);
    host.append(
      say(
        size === null
          ? "This message brought " + int(d.bytes, 0) + " bytes of text; the number of tokens is not reported. "
          : SV.messages.say("lens.message.tokens", { tokens: int(size, 0) + (size === 1 ? " token" : " tokens") }),
        num(d.drafted) === null
          ? ""
          : "The server has drafted " +
              int(d.drafted, 0) +
              " tokens so far and kept " +
              int(d.accepted, 0) +
              " of them.",
      ),
    );
    line(host, {
      name: "Tokens of each message",
      width: c.width,
      series: [{ points: past, step: true, end: size === null ? "1 or more" : int(size, 0) + " tokens" }],
    });
    const steps = SV.serverFacts.facts(c.lane).find((f) => f.name === "per_step");
    if (steps && Array.isArray(steps.value)) {
      const list = steps.value.filter((s) => Array.isArray(s) && num(s[0]) !== null && num(s[1]) !== null).slice(0, 96);
      host.append(say("Accepted of what was drafted, pass by pass, as the server reported at the end:"));
      bars(host, {
        name: "Accepted tokens of each pass",
        width: c.width,
        values: list.map((s) => Math.max(0, s[1])),
        labels: list.map((s) => "of " + int(s[0], 0)),
        cls: () => "acc",
        most: Math.max(1, ...list.map((s) => s[0])),
        height: 104,
      });
    }
    host.append(el("div", null, ...SV.serverTable.table(c.lane).filter(Boolean)));
  }

  SV.lens.message = { title: "What the server reported", draw: message };
})();
