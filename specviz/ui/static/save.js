(value) => {
  /* The last frame of a run holds every record; they become one trace file, without asking the server. */
  const frames = String(value || "")
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
  const whole = frames.reverse().find((frame) => frame.snap);
  if (!whole || !whole.e.length) return;
  const lines = whole.e.map((record) => JSON.stringify(record) + "\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  link.download = "specviz-trace.jsonl";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
