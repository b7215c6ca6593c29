/* The group "Request" of Settings: its widgets as the fields of a request that differ from their defaults, and back. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});
  const NUMBERS = [
    ["n", 1],
    ["top_k", 0],
    ["min_p", 0],
    ["repetition_penalty", 1],
    ["presence_penalty", 0],
    ["frequency_penalty", 0],
    ["min_tokens", 0],
    ["guidance_scale", 1],
  ]; /* in the order of request_fields.py */
  const OWN = [
    ...NUMBERS.map(([name]) => name),
    ...[
      "logit_bias",
      "bad_words",
      "ignore_eos",
      "logprobs",
      "stop",
      "stop_token_ids",
      "response_format",
      "tools",
      "tool_choice",
      "enable_thinking",
      "generation_config",
      "image",
      "hide_image",
    ],
  ]; /* what a run takes beside the dock's fields */
  const DRAWN = [
    ...NUMBERS.map(([name]) => name),
    "stop",
    "generation_config",
    "response_format",
    "image",
    "hide_image",
  ]; /* by a widget each */
  const plain = (x) => Boolean(x) && typeof x === "object" && !Array.isArray(x);

  /* A response format from what was typed: an object with a "type" of ours is one, any other object is a JSON schema. What is no
     JSON is sent as it is, and the server says what it should be. */
  const TYPES = ["text", "json_object", "json_schema", "regex", "choice", "lark"];
  function formatOf(text) {
    try {
      const value = JSON.parse(text);
      return plain(value) && TYPES.includes(value.type)
        ? value
        : { type: "json_schema", json_schema: { schema: value } };
    } catch {
      return text;
    }
  }
  /* The fields without a widget of their own, as typed. What is no JSON object is sent as a field of that name, which the server
     refuses by its name. */
  function othersOf(text) {
    const typed = String(text ?? "").trim();
    if (!typed) return {};
    try {
      const value = JSON.parse(typed);
      return plain(value) ? value : { [typed]: true };
    } catch {
      return { [typed]: true };
    }
  }
  /* The fields of the picture before the prompt (picture.js), from its JSON text. */
  function pictureOf(text) {
    try {
      const { image, hide_image } = JSON.parse(text);
      return typeof image === "string" ? { image, ...(hide_image === true ? { hide_image } : {}) } : {};
    } catch {
      return {};
    }
  }
  const textOf = (format) =>
    typeof format === "string"
      ? format
      : format
        ? JSON.stringify(format.type === "json_schema" ? format.json_schema?.schema : format, null, 1)
        : "";

  page.generation = (...values) => {
    const [stop, modelsOwn, format, more, picture] = values.slice(NUMBERS.length),
      now = { ...othersOf(more), ...pictureOf(picture) };
    NUMBERS.forEach(([name, usual], i) => {
      if (values[i] !== usual && values[i] !== null && values[i] !== undefined) now[name] = values[i];
    });
    const stops = String(stop ?? "")
      .split("\n")
      .filter(Boolean);
    if (stops.length) now.stop = stops;
    if (modelsOwn) now.generation_config = true;
    if (String(format ?? "").trim()) now.response_format = formatOf(format);
    return (page.generated = now);
  };
  /* The widgets' values for the fields of a link, a reload or a recording. */
  page.spread = (given) => {
    const now = plain(given) ? given : {},
      others = Object.fromEntries(Object.entries(now).filter(([name]) => !DRAWN.includes(name)));
    return [
      ...NUMBERS.map(([name, usual]) => (typeof now[name] === "number" ? now[name] : usual)),
      (Array.isArray(now.stop) ? now.stop : []).join("\n"),
      now.generation_config === true,
      textOf(now.response_format),
      Object.keys(others).length ? JSON.stringify(others) : "",
      typeof now.image === "string" ? JSON.stringify({ image: now.image, hide_image: now.hide_image === true }) : "",
    ];
  };
  /* Those fields of a recorded request that the dock does not hold. */
  page.generationOf = (request) =>
    Object.fromEntries(Object.entries(plain(request) ? request : {}).filter(([name]) => OWN.includes(name)));
})();
