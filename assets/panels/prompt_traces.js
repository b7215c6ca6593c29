/* The traces of a prompt set: each opens on the board, and all of them are one archive. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el } = SpecViz.dom;
  const K = P.kit,
    BLOCK = 512; /* bytes, of a tar archive */
  const TEXTS = {
    "traces.open": "Open a prompt\u2019s trace on the board, with all its methods:",
    "traces.all": "All as traces.tar",
  };

  /* files: [{name, bytes}] as a tar archive (ustar). */
  function tar(files) {
    const parts = [];
    for (const { name, bytes } of files) {
      const head = new Uint8Array(BLOCK),
        put = (text, at) => head.set(new TextEncoder().encode(text), at);
      put(name.slice(0, 99), 0);
      put("0000644\0" + "0000000\0".repeat(2), 100);
      put(bytes.length.toString(8).padStart(11, "0") + "\0" + "0".repeat(11) + "\0" + " ".repeat(8) + "0", 124);
      put("ustar\0" + "00", 257);
      put(
        K.sum([...head])
          .toString(8)
          .padStart(6, "0") + "\0 ",
        148,
      );
      parts.push(head, bytes, new Uint8Array(-bytes.length & (BLOCK - 1)));
    }
    return new Blob([...parts, new Uint8Array(2 * BLOCK)], { type: "application/x-tar" });
  }

  /* traces: [{prompt, seed, file}] as lab/prompt_set.py has it; several: a prompt was drawn more than once. */
  function section(env, traces, several) {
    const files = traces.map(({ prompt, seed, file }) => ({
      name: `prompt-${prompt + 1}${several ? `-seed-${seed}` : ""}.jsonl.gz`,
      label: String(prompt + 1) + (several ? `, seed ${seed}` : ""),
      bytes: Uint8Array.from(atob(file), (c) => c.charCodeAt(0)),
    }));
    const tell = K.status();
    const open = async ({ name, bytes }) =>
      tell.set(P.io.openText(env, await P.io.textOf(new File([bytes], name)), ""), "error");
    if (!files.length) return "";
    return el(
      "div",
      { class: "pn-repeat" },
      K.small(TEXTS["traces.open"]),
      el(
        "div",
        { class: "pn-row" },
        files.map((file) => K.button(file.label, () => open(file))),
        K.button(TEXTS["traces.all"], () => SpecViz.save.give(tar(files), "traces.tar")),
      ),
      tell.root,
    );
  }

  P.promptTraces = { section, tar };
})();
