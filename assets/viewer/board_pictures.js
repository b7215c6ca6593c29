/* Which pictures of the board can be saved, and the line under each. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, svg, span, rate } = SV.dom;
  const short = (s) => (s.length > 34 ? s.slice(0, 33) + "\u2026" : s);
  const STRIP = { left: 216, wide: 900, right: 150, row: 52, tall: 36 };

  /* Drawn for the picture alone: it lies outside the page while its styles are read. */
  function styled(board, cls, drawn) {
    const host = el("div", { class: cls, css: { position: "absolute", left: "-9999px", top: "0" } }, drawn);
    board.root.append(host);
    const out = SV.save.bare(drawn);
    host.remove();
    return out;
  }
  /* Pictures that stand on the page, one below another. */
  function standing(list) {
    const g = svg("g");
    let h = 0,
      w = 0;
    for (const one of list) {
      const [, , wide, tall] = one.getAttribute("viewBox").split(" ").map(Number),
        copy = SV.save.bare(one);
      for (const [name, value] of Object.entries({ x: 0, y: h, width: wide, height: tall }))
        copy.setAttribute(name, value);
      g.append(copy);
      h += tall + 12;
      w = Math.max(w, wide);
    }
    return { drawn: g, w, h: Math.max(0, h - 12) };
  }

  /* In Watch plain decoding stands above the open lane. */
  const shown = (b) =>
    b.race() ? b.list().slice(0, SV.dom.LANES) : [...new Set([b.base(), b.focus()])].filter(Boolean);

  function passes(board) {
    const lanes = shown(board),
      p = board.colors,
      { left, wide, right, row, tall } = STRIP,
      n = SV.passes.scaleOf(lanes),
      base = board.base(),
      runs = SV.metrics.common(board.list()),
      drawn = svg("g");
    lanes.forEach((lane, i) => {
      const pen = new SV.svgContext.Pen(),
        m = SV.metrics.of(lane, lane.committed, base, runs),
        say = (x, y, text, size, weight, fill, anchor) =>
          svg(
            "text",
            { x, y, fill, "font-family": p.sans, "font-size": size, "font-weight": weight, "text-anchor": anchor },
            text,
          );
      SV.passes.draw(pen, p, lane, {
        k: lane.committed,
        now: -1,
        n,
        w: wide,
        h: tall,
        even: SV.passes.evenOf(lane, base),
      });
      pen.root.setAttribute("transform", `translate(${left} 0)`);
      const end = left + wide + right;
      drawn.append(
        svg(
          "g",
          { transform: `translate(0 ${i * row})` },
          say(0, 16, SV.stage.titleOf(lane), 14, 600, p.ink),
          say(0, 33, short(SV.stage.knobsOf(lane.header)), 12, 400, p.ink2),
          pen.root,
          say(end, 16, m.passes + (m.passes === 1 ? " pass" : " passes"), 14, 600, p.ink, "end"),
          m.tokens_per_second === null
            ? null
            : say(end, 33, rate(m.tokens_per_second) + " tok/s, " + span(m.seconds), 12, 400, p.ink2, "end"),
        ),
      );
    });
    return { drawn, w: left + wide + right, h: lanes.length * row };
  }

  /* The caption of a picture that shows times; of a busy machine it says so. */
  const timed = (b, caption) => [SV.timing.busySentence(b.list()), caption].filter(Boolean).join(" ");

  /* {passes, tree, rate, time, detail}: each gives {title, caption, drawn, w, h} of what is on the board, or null. */
  const PICTURES = {
    passes: (b) => ({
      title: b.race() ? b.ledger.say.textContent : b.headline.text.textContent,
      caption: SV.passes.block(b.list()).replace(/^o/, "O") + ".",
      ...passes(b),
    }),
    tree(b) {
      const drawn = b.inspector.tree.querySelector("svg.tree");
      return (
        drawn && { title: b.inspector.title.textContent, caption: b.inspector.say.textContent, ...standing([drawn]) }
      );
    },
    rate(b) {
      const drawn = b.chart.picture(720);
      return (
        drawn && {
          title: "Throughput",
          caption: timed(b, "Tokens per second since the prompt was read, on the engine\u2019s clock."),
          drawn: styled(b, "chart", drawn),
          w: 720,
          h: Number(drawn.getAttribute("height")),
        }
      );
    },
    time: (b) => ({
      title: "Where the time went",
      caption: timed(
        b,
        "Dotted: the prompt is read. Light: tokens are guessed. Dark: one pass of the large model checks them; the number is " +
          "how many tokens it gave. Pale: everything else.",
      ),
      ...b.ribbon.picture(),
    }),
    detail(b) {
      const card = b.inspector.body.querySelector(".card.probs");
      if (card)
        return {
          title: b.inspector.title.textContent + ": " + SV.messages.say("picture.probabilities"),
          caption:
            [...b.inspector.reason.children].map((x) => x.textContent).join(" \u00b7 ") || b.inspector.say.textContent,
          ...SV.htmlPicture.of(card),
        };
      const found = [...b.inspector.body.querySelectorAll("svg.lplot, svg.mask")];
      return found.length
        ? {
            title:
              b.inspector.title.textContent + ": " + b.inspector.tabs.querySelector("[aria-selected=true]").textContent,
            caption: found.map((x) => x.getAttribute("aria-label")).join(". ") + ".",
            ...standing(found),
          }
        : null;
    },
  };

  const heads = (b) =>
    shown(b)
      .map((l) => l.header)
      .filter(Boolean);
  function keys(board, name, what) {
    return SV.save.keys(
      what,
      () => board.root,
      () => {
        const made = board.list().length ? PICTURES[name](board) : null;
        return made && { name, from: SV.save.source(heads(board)), ...made };
      },
    );
  }
  const WHAT = {
    passes: "the passes",
    tree: "the draft",
    detail: "this picture",
    rate: "the throughput",
    time: "the times",
  };
  /* One menu for all pictures of the board; a picture that is not on the screen cannot be saved from it. */
  function add(board) {
    const rows = Object.entries(WHAT).map(([name, what]) =>
        el(
          "div",
          { "data-picture": name },
          el("span", null, SV.messages.say("picture." + name)),
          keys(board, name, what),
        ),
      ),
      menu = el(
        "details",
        { class: "exports" },
        el("summary", null, SV.messages.say("picture.save")),
        el("div", null, rows),
      );
    menu.addEventListener("toggle", () => {
      for (const row of rows) row.hidden = !board.list().length || !PICTURES[row.dataset.picture](board);
    });
    menu.addEventListener("focusout", (e) => {
      if (!menu.contains(e.relatedTarget)) menu.open = false;
    });
    board.legend.querySelector(".tools").append(menu);
  }

  SV.boardPictures = { add };
})();
