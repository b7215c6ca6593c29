/* <specviz-trace src="run.jsonl.gz" height="640" round="3" title="...">: a recorded run on any page, in a sandboxed frame of its own.

   src: a trace as JSON Lines, possibly gzipped, at most 20 MB. Where a page may not fetch (opened from a file), the lines stand
   inside: <specviz-trace><script type="application/jsonl">...</script></specviz-trace>. The frame may run the viewer and
   nothing else; it sees neither the page around it nor the network. Keys work once the frame has the focus; a reader who asked
   for reduced motion gets no animation. */
(() => {
  "use strict";
  const PAGE = PAGE_OF_A_TRACE;
  const BYTES = 20 * 2 ** 20,
    HEIGHT = 640,
    MARK = '<div class="sv alone" data-place="'; /* where the page says where it opens */

  async function textOf(stream) {
    const reader = stream.getReader(),
      parts = [];
    let total = 0;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return new Blob(parts);
      if ((total += value.length) > BYTES) {
        reader.cancel().catch(() => {});
        throw new Error("The trace is larger than 20 MB.");
      }
      parts.push(value);
    }
  }
  async function load(src) {
    const response = await fetch(src, { credentials: "same-origin" });
    if (!response.ok) throw new Error("The trace cannot be read (" + response.status + ").");
    let data = await textOf(response.body);
    const head = new Uint8Array(await data.slice(0, 2).arrayBuffer());
    if (head[0] === 0x1f && head[1] === 0x8b)
      data = await textOf(data.stream().pipeThrough(new DecompressionStream("gzip")));
    return data.text();
  }
  function recordsOf(text) {
    const found = [];
    for (const line of text.split("\n")) if (line.trim()) found.push(JSON.parse(line));
    if (!found.length || !found.every((one) => one && typeof one === "object" && !Array.isArray(one)))
      throw new Error("This is not a trace.");
    return found;
  }
  /* JSON inside a script element that no browser runs: no tag can open or close, no separator ends a line. */
  const inert = (value) =>
    JSON.stringify(value).replace(/[<>&\u2028\u2029]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  function pageOf(records, place) {
    const at = PAGE.indexOf(MARK) + MARK.length,
      from = PAGE.indexOf(">", PAGE.indexOf('id="trace"', at)) + 1,
      to = PAGE.indexOf("<" + "/script>", from);
    return PAGE.slice(0, at) + place + PAGE.slice(at, from) + inert(records) + PAGE.slice(to);
  }
  /* The place of a round in the viewer's own words; a round is a whole number, so that it becomes no markup. */
  const placeOf = (round) => (/^[0-9]{1,6}$/.test(round || "") ? "#layout=watch&amp;lane=0&amp;round=" + round : "");

  class SpecVizTrace extends HTMLElement {
    static observedAttributes = ["src", "height", "round", "title"];
    connectedCallback() {
      this.style.display = "block";
      this.draw();
    }
    attributeChangedCallback(name) {
      if (!this.isConnected) return;
      if (name === "src" || name === "round") this.draw();
      else if (this.frame) this.measure();
    }
    measure() {
      const height = Math.min(4000, Math.max(200, Number(this.getAttribute("height")) || HEIGHT));
      this.frame.style.cssText = "width:100%;border:0;height:" + height + "px";
      this.frame.title = this.getAttribute("title") || "A recorded run of speculative decoding";
    }
    async draw() {
      const turn = (this.turn = {}),
        src = this.getAttribute("src"),
        inside = this.querySelector('script[type="application/jsonl"]');
      try {
        const records = recordsOf(src ? await load(src) : inside ? inside.textContent : "");
        if (turn !== this.turn) return;
        this.frame = document.createElement("iframe");
        this.frame.setAttribute("sandbox", "allow-scripts");
        this.frame.loading = "lazy";
        this.measure();
        this.frame.srcdoc = pageOf(records, placeOf(this.getAttribute("round")));
        this.replaceChildren(...(inside ? [inside] : []), this.frame);
        this.dispatchEvent(new CustomEvent("specviz:open"));
      } catch (error) {
        if (turn !== this.turn) return;
        const said = document.createElement("p");
        said.setAttribute("role", "alert");
        said.textContent = error instanceof SyntaxError ? "This is not a trace." : String(error.message);
        this.frame = null;
        this.replaceChildren(...(inside ? [inside] : []), said);
      }
    }
  }
  if (!customElements.get("specviz-trace")) customElements.define("specviz-trace", SpecVizTrace);
})();
