/* Many requests in one pass: how many rows each one drafted for and got, and why; what the policy expected of each length; and
   how far each of several prompts of a lane is. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el } = SV.dom;
  const { int, nums, num, word, say, bars, short, list } = SV.pictures;

  function rows(host, notes, c) {
    const d = notes[0] || {},
      given = nums(d.given, 64),
      asked = nums(d.asked, 64),
      mine = int(d.request, -1),
      used = given.reduce((sum, n) => sum + n, 0),
      padded = num(d.padded),
      speeds = nums(d.speeds, 40),
      reasons = list(d.reasons, 64);
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
      values: given,
      labels: given.map((_, i) => String(i + 1)),
      mark: (i) => i === mine,
      height: 104,
    });
    if (reasons.length > 1)
      host.append(
        el(
          "ol",
          { class: "lwhy" },
          reasons.map((why, i) =>
            el(
              "li",
              { class: i === mine ? "on" : null },
              short(given[i] ?? 0) + " of " + short(asked[i] ?? 0) + " rows: " + word(why, 160),
            ),
          ),
        ),
      );
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

  function group(host, notes, c) {
    const d = notes[0] || {},
      written = nums(d.written, 64),
      had = nums(d.rows, 64),
      done = list(d.done, 64),
      all = written.reduce((sum, n) => sum + n, 0),
      seconds = num(d.seconds);
    host.append(
      say(
        written.length + " prompts share this lane's passes; the board shows the first. Together they have written ",
        all + " tokens",
        seconds > 0 ? ", " + short(all / seconds) + " a second since they were read." : ".",
      ),
    );
    bars(host, {
      name: "Tokens written by prompt",
      width: c.width,
      values: written,
      labels: written.map((_, i) => String(i + 1)),
      mark: (i) => i === 0,
      height: 116,
    });
    host.append(
      el(
        "ol",
        { class: "lwhy" },
        written.map((n, i) =>
          el(
            "li",
            { class: i ? null : "on" },
            word(list(d.prompts, 64)[i], 48) + ": ",
            n + " tokens, ",
            done[i] === true ? "done" : had[i] ? short(had[i]) + " rows in this pass" : "no row in this pass",
          ),
        ),
      ),
    );
  }

  SV.lens.rows = { title: "Rows of the batch", draw: rows };
  SV.lens.class = { title: "The class", draw: group };
})();
