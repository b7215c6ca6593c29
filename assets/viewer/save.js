/* A picture of the board as a file: SVG, or PNG wide enough for a poster. Under the drawing stand what it shows and where it
   comes from: methods, models, prompt, settings, machine, day and version. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, svg } = SV.dom;
  const WIDTH = 3600 /* of a PNG, in px */,
    MARGIN = 28,
    LETTERS = ["font-family", "font-size", "font-weight", "font-style", "text-anchor", "text-decoration-line"],
    SHAPES = ["stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity"],
    DROP = ["class", "role", "tabindex", "style", "aria-label"];

  /* Any colour of the page as #rrggbb and an opacity: other programs do not know how a sheet may mix colours. */
  const known = new Map();
  function plainColour(value) {
    if (!known.has(value)) {
      const c = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      c.canvas.width = c.canvas.height = 1;
      c.fillStyle = value;
      c.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = c.getImageData(0, 0, 1, 1).data;
      known.set(value, ["#" + [r, g, b].map((x) => x.toString(16).padStart(2, "0")).join(""), a / 255]);
    }
    return known.get(value);
  }

  /* A copy that needs no sheet: everything that the page's styles say is written at each part. */
  function bare(node) {
    const style = getComputedStyle(node);
    if (style.display === "none" || style.visibility === "hidden") return null;
    const out = node.cloneNode(false);
    for (const name of [...out.attributes].map((a) => a.name))
      if (DROP.includes(name) || name.startsWith("data-")) out.removeAttribute(name);
    for (const name of ["fill", "stroke"]) {
      const value = style.getPropertyValue(name);
      if (!value || value === "none" || value.startsWith("url(")) {
        if (name === "fill" || node.hasAttribute(name)) out.setAttribute(name, value || "none");
        continue;
      }
      const [colour, seen] = plainColour(value);
      out.setAttribute(name, colour);
      if (seen < 1) out.setAttribute(name + "-opacity", seen.toFixed(3));
    }
    for (const name of node.localName === "text" ? [...SHAPES, ...LETTERS] : SHAPES) {
      const value = style.getPropertyValue(name),
        to = name === "text-decoration-line" ? "text-decoration" : name;
      if (value && value !== "none" && !(name === "opacity" && value === "1")) out.setAttribute(to, value);
    }
    for (const kid of node.childNodes) {
      const copy = kid.nodeType === Node.TEXT_NODE ? kid.cloneNode() : kid.nodeType === 1 ? bare(kid) : null;
      if (copy) out.append(copy);
    }
    return out;
  }

  /* Lines of at most so many letters. */
  function lines(text, most) {
    const out = [""];
    for (const word of text.split(/\s+/)) {
      const last = out[out.length - 1];
      if (last && last.length + word.length + 1 > most) out.push(word);
      else out[out.length - 1] = last ? last + " " + word : word;
    }
    return out;
  }

  /* {title, caption, from: [sentence], drawn: an SVG element, w, h}: the whole picture. */
  function poster(p, { title, caption, from, drawn, w, h }) {
    const W = Math.max(640, w) + 2 * MARGIN,
      kids = [];
    let y = MARGIN + 18;
    const say = (text, size, fill, weight) => {
      for (const line of lines(text, (W - 2 * MARGIN) / (size * 0.54))) {
        const letters = { "font-family": p.sans, "font-size": size, "font-weight": weight };
        kids.push(svg("text", { x: MARGIN, y, fill, ...letters }, line));
        y += size * 1.45;
      }
    };
    say(title, 20, p.ink, 600);
    kids.push(svg("g", { transform: `translate(${MARGIN} ${y - 6})` }, drawn));
    y += h + 22;
    say(caption, 14, p.ink, 400);
    y += 4;
    for (const line of from) say(line, 11, p.ink2, 400);
    const all = {
      xmlns: "http://www.w3.org/2000/svg",
      viewBox: `0 0 ${W} ${Math.ceil(y)}`,
      width: W,
      height: Math.ceil(y),
    };
    return svg("svg", all, svg("rect", { width: W, height: Math.ceil(y), fill: p.surface }), kids);
  }

  /* Where a picture comes from, by the headers of its lanes. */
  function source(heads) {
    const h = heads[0],
      page = SV.messages.say("picture.drawn", { version: SV["version"] });
    if (!h) return [page + "."];
    const s = h.sampling || {},
      text = SV.text.joined(SV.text.visible(String((h.prompt && h.prompt.text) || ""))).replace(/\s+/g, " "),
      method = (x) => [x.method.title || x.method.key, SV.stage.knobsOf(x)].filter(Boolean).join(", "),
      sampling = s.temperature > 0 ? `temperature ${s.temperature}, top-p ${s.top_p}` : "greedy",
      made = { live: "Measured", recorded: "Recorded", simulated: "Invented, no model ran" }[h.mode] || "Drawn",
      where = SV.notice.machine(h),
      by = h.env && h.env.specviz ? "by specviz " + String(h.env.specviz).slice(0, 20) : "";
    return [
      "Methods: " +
        heads
          .filter((x) => x.method)
          .map(method)
          .join("; ") +
        ".",
      "Model: " + SV.notice.nature(h.target || {}) + (h.draft ? "; draft " + h.draft.name : "") + ".",
      "Prompt: \u201c" + (text.length > 200 ? text.slice(0, 199) + "\u2026" : text) + "\u201d",
      `Settings: at most ${h.max_new_tokens} tokens, ${sampling}, seed ${s.seed ?? 0}.`,
      [made + (where ? " on " + where : ""), by, SV.notice.when(h.created), "run " + h.run_id, page]
        .filter(Boolean)
        .join(", ") + ".",
    ];
  }

  /* Where one comes from that a panel has measured or computed itself, today. */
  const own = (text) => [
    text + " " + SV.notice.when(Date.now()) + ", " + SV.messages.say("picture.drawn", { version: SV["version"] }) + ".",
  ];

  const textOf = (picture) => new XMLSerializer().serializeToString(picture);
  function give(blob, name) {
    const link = el("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1e4);
  }
  async function png(picture) {
    const image = new Image();
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(textOf(picture));
    await image.decode();
    const k = WIDTH / Number(picture.getAttribute("width")),
      canvas = el("canvas", { width: WIDTH, height: Math.round(Number(picture.getAttribute("height")) * k) });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }

  /* Two buttons; make() gives {name, title, caption, from, drawn, w, h}, or null where there is nothing to save. */
  function keys(what, root, make) {
    const press = async (kind) => {
      const made = make();
      if (!made) return;
      const picture = poster(SV.dom.palette(root()), made);
      const blob = kind === "PNG" ? await png(picture) : new Blob([textOf(picture)], { type: "image/svg+xml" });
      give(blob, "specviz-" + made.name + "." + kind.toLowerCase());
    };
    return el(
      "span",
      { class: "saves" },
      ["SVG", "PNG"].map((kind) =>
        el(
          "button",
          { type: "button", "aria-label": `Save ${what} as ${kind}`, on: { click: () => press(kind) } },
          kind,
        ),
      ),
    );
  }

  SV.save = { keys, give, poster, source, own, bare, plainColour };
})();
