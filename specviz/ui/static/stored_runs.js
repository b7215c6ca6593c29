/* Runs that the server keeps, so that a link can open one that is too large to travel inside it. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});
  const MOST = 20 * 2 ** 20; /* bytes of a trace, as the reader of traces has it */
  const address = (name = "") => (window.gradio_config?.root ?? "") + "/runs" + name;

  /* {hash} of the run on the server, or {why} it keeps none; page.days: how long it keeps one, 0: never. */
  page.store = async (records) => {
    if (!page.days) return { why: "this server keeps no runs" };
    try {
      const lines = new Blob(records.map((r) => JSON.stringify(r) + "\n")),
        body = await new Response(lines.stream().pipeThrough(new CompressionStream("gzip"))).blob(),
        answer = await fetch(address(), { method: "POST", headers: { "Content-Type": "application/gzip" }, body }),
        said = await answer.json();
      return answer.ok ? { hash: said.hash } : { why: `the server did not keep it (${said.detail})` };
    } catch {
      return { why: "the server could not be asked to keep it" };
    }
  };

  /* The text of a stored run; "" where the server has none of this name. It is read like any opened file. */
  page.stored = async (hash) => {
    try {
      const answer = await fetch(address("/" + hash));
      return answer.ok ? await page.inflate(answer.body, "gzip", MOST) : "";
    } catch {
      return "";
    }
  };
})();
