/* Traces: where the text was easy, token by token and by kind of token. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, svg, pct, f3, parts } = SpecViz.dom;
  const K = P.kit,
    M = P.maths,
    T = SpecViz.text;
  const SHOWN = 3000;

  /* What kind of token: by its bytes alone. */
  /** @type {[key: string, name: string, is: (text: string) => boolean][]} */
  const KINDS = [
    ["newline", "line breaks", (s) => /^[\s]*[\r\n]+[\s]*$/.test(s)],
    ["digit", "numbers", (s) => /^\s*\d+$/.test(s)],
    ["mark", "punctuation", (s) => /^\s*[\p{P}\p{S}]+$/u.test(s)],
    ["start", "beginnings of words", (s) => /^\s/.test(s)],
    ["inside", "rest of words", () => true],
  ];
  const kindOf = (s) => KINDS.find(([, , is]) => is(s))[0];

  /* For each token of the output: how likely was it that the draft's guess would stay? {a: 0..1 or null, node, round} */
  function ease(lane) {
    const { hit } = M.answers(lane),
      out = [];
    for (const r of lane.rounds)
      for (let j = 0; j < r.n; j++) {
        const id = r.path[j],
          test = id !== undefined ? r.raw.judges.get(id) : null,
          h = hit[out.length];
        out.push({
          a: h === null ? null : h === 0 ? 0 : test && test.a !== null ? test.a : 1,
          round: r.i,
          node: id !== undefined ? id : "tail",
          hit: h,
        });
      }
    return out;
  }

  /* The text as it stands on the page, line by line, for a file: a word that the page broke in two is drawn whole. */
  function drawn(text) {
    const p = SpecViz.dom.palette(text),
      at = text.getBoundingClientRect(),
      size = parseFloat(getComputedStyle(text).fontSize),
      out = svg("g");
    for (const span of text.children) {
      const shade = parseFloat(span.style.getPropertyValue("--h") || "0") / 100,
        dashes = span.classList.contains("lost") ? "5 3" : span.classList.contains("none") ? "1 3" : "",
        colour = dashes === "5 3" ? p.rej : p.ink3;
      for (const box of span.getClientRects()) {
        if (box.width < 1) continue;
        const [x, y] = [box.left - at.left, box.top - at.top + text.scrollTop];
        const shaded = { x, y: y + box.height * (1 - shade), width: box.width, height: box.height * shade };
        if (shade) out.append(svg("rect", { ...shaded, fill: p.rej, "fill-opacity": 0.26 }));
        const below = { x1: x, x2: x + box.width, y1: y + box.height + 2, y2: y + box.height + 2, stroke: colour };
        if (dashes) out.append(svg("line", { ...below, "stroke-width": 1.5, "stroke-dasharray": dashes }));
      }
      const walk = document.createTreeWalker(span, NodeFilter.SHOW_TEXT);
      for (let node = walk.nextNode(); node; node = walk.nextNode()) {
        const data = node.nodeValue,
          word = data.trim(),
          range = document.createRange();
        if (!word) continue;
        range.setStart(node, data.indexOf(word));
        range.setEnd(node, data.indexOf(word) + word.length);
        const box = range.getClientRects()[0];
        if (!box) continue;
        const [x, y] = [box.left - at.left, box.top - at.top + text.scrollTop + box.height * 0.76];
        out.append(svg("text", { x, y, fill: p.ink, "font-family": p.mono, "font-size": size }, word));
      }
    }
    return { drawn: out, w: text.clientWidth, h: text.scrollHeight };
  }

  function predictability(env) {
    const root = el("div", { class: "pn-view" });
    let last;
    function paint(l) {
      const list = ease(l),
        tokens = l.folded.tokens.slice(0, Math.min(list.length, SHOWN)),
        text = el("p", { class: "pn-shaded", dir: "auto" });
      const by = new Map(KINDS.map(([k]) => [k, { asked: 0, kept: 0 }]));
      tokens.forEach((t, i) => {
        const e = list[i],
          say = T.joined(t.parts);
        if (e.hit !== null) {
          const k = by.get(kindOf(say));
          k.asked++;
          k.kept += e.hit;
        }
        const hard = e.a === null ? null : 1 - e.a,
          span = el(
            "span",
            {
              class: "h " + (hard === null ? "none" : e.hit ? "kept" : "lost"),
              "data-i": i,
              role: "button",
              tabindex: i ? "-1" : "0",
              title:
                hard === null
                  ? "The draft was not asked here"
                  : e.hit
                    ? `Kept; chance ${f3(e.a)}`
                    : "The guess here was rejected",
              css: hard ? { "--h": Math.round(100 * hard) + "%" } : null,
            },
            parts(t.parts),
          );
        text.append(span);
      });
      text.addEventListener("keydown", (ev) => {
        /* one stop for the Tab key; the arrows walk the text */
        const s = ev.target.closest("[data-i]"),
          to =
            s &&
            {
              ArrowRight: s.nextElementSibling,
              ArrowLeft: s.previousElementSibling,
              Home: text.firstElementChild,
              End: text.lastElementChild,
            }[ev.key];
        if (s && ev.key === "Enter") s.click();
        if (!to) return;
        ev.preventDefault();
        ev.stopPropagation();
        s.tabIndex = -1;
        to.tabIndex = 0;
        to.focus();
      });
      text.addEventListener("click", (ev) => {
        const s = ev.target.closest("[data-i]");
        if (s) {
          const e = list[Number(s.dataset.i)];
          env.show({ lane: l.id, round: e.round, phase: 4, node: e.node, tab: "why" });
        }
      });
      const rows = KINDS.map(([k, name]) => ({ name, ...by.get(k) })).filter((x) => x.asked),
        asked = K.sum(rows.map((x) => x.asked)),
        kept = K.sum(rows.map((x) => x.kept));
      root.replaceChildren(
        K.head(
          "Where it was easy",
          K.lead(
            "The text, shaded where a guess was likely to fail. Runs of clean text are where the speed comes from.",
          ),
        ),
        env.laneLine(l),
        el(
          "div",
          { class: "pn-box" },
          el(
            "div",
            { class: "pn-keys pn-heatkey" },
            el("span", null, el("span", { class: "h kept" }, "kept")),
            el(
              "span",
              null,
              el("span", { class: "h kept", css: { "--h": "55%" } }, "kept"),
              "by luck: it might have failed",
            ),
            el(
              "span",
              null,
              el("span", { class: "h lost", css: { "--h": "100%" } }, "word"),
              "the guess was rejected here",
            ),
            el("span", null, el("span", { class: "h none" }, "word"), SpecViz.messages.say("predictability.none")),
          ),
          text,
          list.length > SHOWN
            ? K.small(`The first ${SHOWN.toLocaleString("en")} of ${list.length.toLocaleString("en")} tokens.`)
            : null,
          K.small("Choose a token to see its round on the board; arrow keys walk the text."),
          SpecViz.save.keys(
            "the shaded text",
            () => text,
            () => ({
              name: "predictability",
              title: "Where it was easy: " + l.title,
              caption:
                "The higher the shade, the likelier it was that the guess would be rejected. Dashed: it was rejected. " +
                "Dotted: " +
                SpecViz.messages.say("predictability.none") +
                ".",
              from: env.source(),
              ...drawn(text),
            }),
          ),
        ),
        el(
          "div",
          { class: "pn-box pn-words" },
          el("h3", null, "By kind of token"),
          P.plot.bars(
            rows.map((x) => ({
              name: x.name,
              value: x.kept / x.asked,
              show: `${pct(x.kept / x.asked)} of ${x.asked}`,
              mark: asked ? kept / asked : 0,
            })),
            {
              max: 1,
              label: SpecViz.messages.say("predictability.kinds"),
              caption: `${l.title}. Lines across: the whole text's ${pct(asked ? kept / asked : 0)}.`,
              from: env.source,
            },
          ),
          K.small(
            `Guesses kept where the draft was asked. The mark is the whole text's ${pct(asked ? kept / asked : 0)}.`,
          ),
        ),
      );
    }
    return {
      root,
      update() {
        const l = env.lane();
        if (!l) {
          root.replaceChildren(env.empty("Where it was easy", "Open or run a trace with a drafting method first."));
          last = null;
          return;
        }
        if (l !== last) {
          last = l;
          paint(l);
        }
      },
      destroy() {},
    };
  }

  (P.views = P.views || {}).predictability = predictability;
  P.predictability = { ease, kindOf };
})();
