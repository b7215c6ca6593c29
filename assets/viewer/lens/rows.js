/* Many requests in one pass: how many rows each one drafted for and got, and what the policy expected of each length. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz = globalThis.SpecViz || {});
  const { int, nums, num, word, say, bars, short } = SV.pictures;

  function rows(host, notes, c) {
    const d = notes[0] || {},
      given = nums(d.given, 64),
      asked = nums(d.asked, 64),
      mine = int(d.request, -1),
      used = given.reduce((sum, n) => sum + n, 0),
      padded = num(d.padded),
      speeds = nums(d.speeds, 40);
    host.append(
      say(
        "The pass had " + used + " rows for " + given.length + (given.length === 1 ? " request" : " requests"),
        padded === null || padded <= used ? "" : " (padded to the longest: " + int(padded, 0) + ")",
        ". This one got " + short(given[mine] ?? 0) + " of the " + short(asked[mine] ?? 0) + " it drafted for: ",
        word(d.why, 160) + ".",
        num(d.budget) === null ? "" : " Draft rows to share out: " + int(d.budget, 0) + ".",
      ),
    );
    bars(host, {
      name: "Rows of the pass by request",
      width: c.width,
      values: given.map((n) => n / Math.max(1, ...given)),
      labels: given.map((n) => String(n)),
      mark: (i) => i === mine,
      most: 1,
      height: 104,
    });
    if (!speeds.length) return;
    host.append(
      say(
        "Tokens a second expected from each draft length",
        num(d.acceptance) === null ? "" : ", at an acceptance of " + short(d.acceptance),
        ":",
      ),
    );
    bars(host, {
      name: "Goodput expected of each draft length",
      width: c.width,
      values: speeds.map((speed) => speed / Math.max(1e-9, ...speeds)),
      labels: speeds.map((_, i) => String(i)),
      mark: (i) => i === int(d.gamma, -1),
      most: 1,
      height: 104,
    });
  }

  SV.lens.rows = { title: "Rows of the batch", draw: rows };
})();
