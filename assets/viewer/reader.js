/* Validates an imported trace: the records of a text of JSON Lines, or one sentence that says why not. The fold
   bears anything; a person who opens a file that is no trace should see a message instead of an empty board. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const BYTES = 20 * 2 ** 20,
    LANES = 64,
    RECORDS = 100_000,
    ROUNDS = 100_000,
    NODES = 4096,
    DEPTH = 32,
    PROMPT = 100_000 /* characters of a prompt and its earlier turns */,
    TEXT = 2 ** 21 /* bytes that a lane may write */,
    PIECE = 4096; /* characters of one token's bytes in base64 */
  const TYPES = new Set([
    "header",
    "vocab",
    "prefill",
    "draft",
    "verify",
    "judge",
    "commit",
    "text",
    "timing",
    "lens",
    "check",
    "stop",
    "error",
    "done",
  ]);
  const ROUND = new Set(["draft", "verify", "judge", "commit", "text", "timing", "lens"]);
  const whole = (x, lo, hi) => Number.isInteger(x) && x >= lo && x <= hi;
  const no = (why) => {
    throw new RangeError(why);
  };

  /* {records} or {why}. Takes a text, or records that were parsed elsewhere. */
  function read(input) {
    try {
      const records =
        typeof input === "string"
          ? parse(input)
          : Array.isArray(input)
            ? input
            : no("A trace is text of JSON Lines, or a list of records.");
      if (!records.length) no("The trace holds no records.");
      const lanes = new Map();
      records.forEach((r, i) => take(lanes, r, "Record " + (i + 1)));
      return { records };
    } catch (e) {
      return { why: e instanceof RangeError ? e.message : "The trace cannot be read." };
    }
  }

  function parse(text) {
    if (text.length > BYTES) no("The trace is larger than 20 MB.");
    const out = [];
    let n = 0;
    for (const line of text.split(/\r?\n/)) {
      n++;
      if (!line.trim()) continue;
      if (out.length >= LANES * RECORDS) no("The trace holds too many records.");
      let r;
      try {
        r = JSON.parse(line);
      } catch {
        no("Line " + n + " is not JSON.");
      }
      out.push(r);
    }
    return out;
  }

  function take(lanes, r, where) {
    if (!r || typeof r !== "object" || Array.isArray(r) || !TYPES.has(r.type)) no(where + " is of no known type.");
    if (!whole(r.lane, 0, LANES - 1)) no(where + ": the lane must be a whole number below " + LANES + ".");
    finite(r, where, 0);
    const lane = lanes.get(r.lane) || {
      seq: -1,
      count: 0,
      rounds: new Map(),
      top: -1,
      over: false,
      textBytes: 0,
      committed: -1,
    };
    if (!lanes.has(r.lane)) {
      header(r, where);
      lanes.set(r.lane, lane);
    } else if (r.type === "header") no(where + ": lane " + r.lane + " has a second header.");
    if (!whole(r.seq, 0, 2 ** 40)) no(where + ": seq must be a whole number.");
    if (r.seq <= lane.seq) no(where + ": seq must rise within a lane.");
    if (++lane.count > RECORDS) no("Lane " + r.lane + " holds more than " + RECORDS + " records.");
    if (lane.over && r.type !== "check") no(where + ": its lane has already ended.");
    lane.seq = r.seq;
    lane.over = lane.over || r.type === "done";
    if (ROUND.has(r.type)) inRound(lane, r, where);
  }

  function header(r, where) {
    if (r.type !== "header") no(where + ": lane " + r.lane + " begins without a header.");
    if (typeof r.schema !== "string") no(where + ": this is not a specviz trace.");
    if (r.schema !== "specviz-trace/1")
      no(
        "This viewer reads specviz-trace/1, and the trace says " +
          SV.text.joined(SV.text.visible(r.schema)).slice(0, 40) +
          ".",
      );
    const asked = r.prompt && typeof r.prompt === "object" ? r.prompt : {},
      turns = Array.isArray(asked.turns) ? asked.turns : [];
    const long = [asked.text, ...turns.map((t) => t && (t.text ?? t.content))].reduce((n, s) => n + size(s), 0);
    if (long > PROMPT) no(where + ": a prompt and its turns hold at most " + PROMPT + " characters.");
  }
  const size = (s) => (typeof s === "string" ? s.length : 0);

  function inRound(lane, r, where) {
    if (!whole(r.round, 0, ROUNDS - 1) || r.round > lane.top + 1)
      no(where + ": its round does not follow the one before.");
    lane.top = Math.max(lane.top, r.round);
    if (r.type === "draft") {
      if (!Array.isArray(r.nodes) || r.nodes.length > NODES) no(where + ": a draft holds at most " + NODES + " nodes.");
      r.nodes.forEach((n, i) => {
        if (!n || n.id !== i || !whole(n.parent, -1, i - 1) || !whole(n.tok, -1, 2 ** 31))
          no(where + ": node " + i + " is not in order.");
      });
      lane.rounds.set(r.round, r.nodes.length);
    }
    const known = (id) => whole(id, 0, (lane.rounds.get(r.round) ?? 0) - 1);
    if (r.type === "judge" && !known(r.node)) no(where + " judges a node that was not drafted.");
    if (r.type === "commit" && !(Array.isArray(r.path) && r.path.every(known) && r.tail && typeof r.tail === "object"))
      no(where + " commits what was not drafted.");
    if (r.type === "commit") {
      if (r.round <= lane.committed) no(where + ": rounds must be committed in order and once.");
      lane.committed = r.round;
    }
    if (r.type === "text") checkText(lane, r, where);
  }

  function checkText(lane, r, where) {
    if (!Array.isArray(r.pieces)) no(where + ": its pieces are missing.");
    for (const piece of r.pieces) {
      const n = size(piece && piece.b);
      if (n > PIECE) no(where + ": a token's bytes are at most " + PIECE + " characters of base64.");
      lane.textBytes += (n * 3) / 4;
    }
    if (lane.textBytes > TEXT) no(where + ": a lane writes at most 2 MB of text.");
  }

  /* Every number finite, nothing nested beyond reason. JSON has no infinity, but 1e999 becomes one. */
  function finite(x, where, depth) {
    if (typeof x === "number" && !Number.isFinite(x)) no(where + " holds a number that is not finite.");
    if (!x || typeof x !== "object") return;
    if (depth > DEPTH) no(where + " is nested too deep.");
    for (const one of Array.isArray(x) ? x : Object.values(x))
      if (one !== null && typeof one !== "string") finite(one, where, depth + 1);
  }

  SV.reader = { read };
})();
