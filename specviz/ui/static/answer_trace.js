/* The text of a trace that a link names: a recording of the library, or an answer of the OpenAI-compatible endpoint. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});
  const ANSWER = /^(chatcmpl|cmpl)-[0-9a-f]{24}$/; /* the id of an answer; nobody can guess one */

  page.traceText = async (name) => {
    if (!ANSWER.test(name)) return page.ask("library_trace", { name });
    const sent = await fetch(`${window.gradio_config?.root ?? ""}/v1/traces/${name}.jsonl`);
    if (!sent.ok) throw new Error("This answer's trace is no longer kept.");
    return sent.text();
  };
})();
