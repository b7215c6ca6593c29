/* Questions to the server: ask(name, details, onUpdate, signal) resolves with the answer, or rejects with one sentence.
   onUpdate receives {state: "queued" | "working", text?, part?} on the way; signal (AbortSignal) ends the question and
   its work. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});
  const root = () => (window.gradio_config?.root ?? "") + "/gradio_api";
  const open = new Set(); /* questions under way: whoever leaves takes them back */
  const LOST = "The server cannot be reached; everything recorded still works.";

  function end(id) {
    if (!open.delete(id)) return;
    const own = window.gradio_config?.dependencies?.find((d) => d.api_name === "ask");
    const body = JSON.stringify({ event_id: id, session_hash: id, fn_index: own?.id ?? -1 });
    fetch(root() + "/cancel", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body,
      keepalive: true,
    }).catch(() => {});
  }
  addEventListener("pagehide", () => open.forEach(end));

  async function ask(name, details, onUpdate, signal) {
    let stream, id;
    try {
      const body = JSON.stringify({ data: [name, details ?? {}] });
      const sent = await fetch(root() + "/call/ask", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body,
        signal,
      });
      if (!sent.ok) throw new Error(LOST);
      id = (await sent.json()).event_id;
      open.add(id);
      signal?.addEventListener("abort", () => end(id));
      stream = await fetch(`${root()}/call/ask/${id}`, { signal });
    } catch (error) {
      throw error.name === "AbortError" ? error : new Error(LOST);
    }
    let last = null;
    for await (const line of finishing(id, stream)) {
      if (!line.startsWith("data: ")) continue;
      const data = read(line.slice(6));
      const message = Array.isArray(data) ? read(data[0]) : null;
      if (!message) continue;
      last = message;
      if (message.state === "error") throw new Error(message.text);
      if (message.state !== "done" && onUpdate) onUpdate(message);
    }
    if (!last || last.state !== "done") throw new Error("The answer did not arrive whole; try again.");
    return last.answer;
  }
  const read = (text) => {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  };

  async function* finishing(id, stream) {
    yield* lines(stream);
    open.delete(id);
  }
  async function* lines(answer) {
    if (!answer.ok || !answer.body) throw new Error(LOST);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts;
    }
    if (rest) yield rest;
  }
  page.ask = ask;
})();
