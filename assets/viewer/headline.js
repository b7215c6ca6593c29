/* The headline: what this run comes to, in one sentence, and whether the text is the same. From the folded trace alone. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, svg, setText, setAttr, count } = SV.dom;
  const { firstDifference, over } = SV.verdict;
  const M = SV.metrics,
    AS_FAST = SV.speed.CLOSE /* nearer than this is no difference that anybody would feel */,
    WIDE = 1.1 /* an interval whose ends are further apart is written out */,
    MOST_TOKENS = 512 /* that one run may write */,
    LONG = 24 /* letters that fit beside a badge and a link on a phone */,
    HARD = 3; /* the step of the lesson "When it pays" that shows a round which lost */

  const sampled = (lane) => Boolean(lane.header && lane.header.sampling && lane.header.sampling.temperature > 0);
  const cut = (lane) => Boolean(lane.done && ["stopped", "deadline"].includes(lane.done.finish));
  const loose = (lane) =>
    Boolean(
      lane.header && lane.header.method && lane.header.method.exactness && lane.header.method.exactness !== "exact",
    );
  const passes = (n) => count(n, "pass", "passes");

  /* {text, same, at}: the sentence, the statement about the text, and the place where it first differs (an index) or null.
     runs: as metrics.of has it. */
  function say(lane, base, runs) {
    const own = sayOne(lane, base, runs),
      ended = over(lane) && (!base || over(base));
    if (lane.error || own.at !== null || SV.serverFacts.is(lane)) return own;
    return { ...own, text: SV.batch.headline(lane, base, ended) || own.text };
  }
  function sayOne(lane, base, runs) {
    const m = M.of(lane, lane.committed, base, runs),
      n = m.tokens,
      out = { text: "", same: "", at: null, sure: false };
    if (lane.error) return { ...out, text: SV.stage.titleOf(lane) + " failed; the other lanes are kept." };
    if (!n) return { ...out, text: SV.messages.say("headline.reading") };
    if (SV.serverFacts.is(lane)) return { ...out, ...served(lane, base, m) };
    if (M.isBaseline(lane))
      return {
        ...out,
        text:
          "Plain decoding: " +
          count(n, "token") +
          " in " +
          passes(m.passes) +
          `, ${SV.messages.say(SV.output.of(lane).grids ? "plain.scale" : "plain.token")}.`,
      };
    if (!over(lane) || (base && !over(base))) {
      const same = base && !sampled(lane) ? SV.messages.say("headline.checking") : "";
      return {
        ...out,
        same,
        text: `So far: ${count(n, "token")} in ${passes(m.passes)} of the large model instead of ${n}.`,
      };
    }
    if (!base)
      return {
        ...out,
        text: `${count(n, "token")} in ${passes(m.passes)} of the large model; plain decoding needs ${n}.`,
      };
    const d = firstDifference(lane, base),
      stopped = cut(lane) || cut(base),
      differs = d.at !== null && (!stopped || d.at < Math.min(n, base.tokens.length));
    const { fast, faster } = speedWords(m);
    if (sampled(lane)) {
      const same = loose(lane)
        ? SV.messages.say(SV.output.of(lane).side > 0 ? "headline.loose.picture" : "headline.loose.text")
        : SV.messages.say(SV.output.of(lane).side > 0 ? "headline.sampled.patches" : "headline.sampled.words");
      const lead =
        (stopped ? "Stopped after " : "") + count(n, "token") + (stopped ? ", in " : " in ") + passes(m.passes);
      const small = lane.tokens.filter((t) => lane.rounds[t.round]?.why === "small").length;
      if (small && !stopped)
        /* passes of the large model gave only what the small one did not write */
        return {
          ...out,
          same,
          text: SV.messages.say("headline.two_writers", {
            tokens: count(n, "token"),
            large: String(n - small),
            passes: passes(m.passes),
            small: String(small),
            end: fast ? ": " + fast : "",
          }),
        };
      return {
        ...out,
        same,
        /* plain decoding wrote another text, maybe of another length: no pass is counted against it */
        text: SV.messages.say(fast && !stopped ? "headline.sampled.fast" : "headline.sampled", {
          lead,
          each: m.block_efficiency.toFixed(2),
          fast,
        }),
      };
    }
    if (differs)
      return {
        ...out,
        at: d.at,
        same: loose(lane) ? "allowed to differ: this method may change the text" : "differs from plain decoding",
        text: loose(lane)
          ? `${count(n, "token")} in ${passes(m.passes)} of the large model: another text from place ${d.at + 1} on.`
          : `The text differs from place ${d.at + 1} on.`,
      };
    if (stopped)
      return {
        ...out,
        sure: d.same > 0,
        same: !d.same
          ? ""
          : SV.messages.say("headline.same.so_far", { part: d.same < n ? d.same + " of " + n + " " : "" }),
        text: SV.messages.say(
          d.same === n ? "headline.stopped.same" : d.same ? "headline.stopped.part" : "headline.stopped",
          {
            tokens: count(n, "token"),
            same: String(d.same),
            passes: passes(m.passes),
            n: String(n),
          },
        ),
      };
    /* "the same" and the mark below the headline say that the text is */
    const end = !fast ? "" : SV.messages.say(faster ? "headline.same.faster" : "headline.same.slower", { fast });
    return {
      ...out,
      sure: true,
      same: SV.messages.say("headline.same.checked"),
      text: SV.messages.say("headline.same", {
        tokens: count(n, "token"),
        passes: passes(m.passes),
        n: String(n),
        end,
      }),
    };
  }

  /* A speed-up in words, and whether it is one: {fast, faster}; fast is empty where no speed is named. */
  function speedWords(m) {
    const speed = m.speed;
    if (!speed?.named) return { fast: "", faster: false };
    const digits = speed.value < 1 ? 2 : 1,
      [value, low, high] = [speed.value, speed.low, speed.high].map((x) => x.toFixed(digits)),
      wide = speed.high > WIDE * speed.low,
      faster = speed.clear && speed.value >= AS_FAST,
      slower = speed.high < 1 && speed.value * AS_FAST < 1,
      kind = faster ? "headline.fast" : slower ? "headline.slower" : "headline.level",
      again = m.spread ? SV.messages.say("headline.median", { runs: String(m.spread.runs) }) : "";
    return { faster, fast: SV.messages.say(kind + (wide ? ".about" : ""), { value, low, high }) + again };
  }

  /* {pays, why}: from how many tokens a round pays here; and where it was no faster, why: what a pass over guesses costs beside
     a plain one, and the share of the time that guessing took. */
  function reason(lane, base, runs) {
    const of = SV.price.of(lane, base),
      m = of && M.of(lane, lane.committed, base, runs);
    if (!of || !m.speed?.named) return { pays: "", why: "" };
    const values = {
      each: of.each.toFixed(2),
      even: of.even.toFixed(2),
      times: of.verify.toFixed(1),
      share: String(Math.round(100 * of.share)),
    };
    return {
      pays: SV.messages.say("headline.pays", values),
      why: m.speed.clear ? "" : SV.messages.say("headline.reason", values),
    };
  }

  function served(lane, base, m) {
    const n = count(m.tokens, "token");
    if (!over(lane)) return { text: `So far ${n} from the server, on a clock of its own: wall time at this client.` };
    const per =
      m.block_efficiency === null
        ? "how many passes that took it does not tell"
        : SV.messages.say("headline.server.passes", { each: m.block_efficiency.toFixed(2), badge: m.badges.passes });
    const same = base && over(base) && !sampled(lane) && SV.serverFacts.firstDifference(lane, base).at === null;
    return {
      text: SV.messages.say("headline.server", { tokens: n, passes: per }),
      same: same ? "same text as plain decoding here" : "",
      sure: Boolean(same),
    };
  }

  const tick = () =>
    svg(
      "svg",
      { viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" },
      svg("path", { d: "M2 7.5 5.5 11 12 3.5" }),
    );

  class Headline {
    constructor(board, notice) {
      this.board = board;
      this.text = el("h2", { class: "headline" });
      this.mark = el("span");
      this.place = el("button", { hidden: true, on: { click: () => this.go() } }, "show the place");
      this.tick = tick();
      this.same = el("span", { class: "same", hidden: true }, this.tick, this.mark, this.place);
      notice.badge.after(this.same);
      this.pays = el("button", { class: "pays", on: { click: () => globalThis.SpecVizPage.lesson("pays", HARD) } });
      setText(this.pays, "When does it not pay?");
      this.pays.hidden = !globalThis.SpecVizPage?.lesson; /* a board alone has no lessons */
      notice.facts.before(this.pays);
      this.dial = new SV.dial.Dial(board, notice.facts);
      this.more = el("button", { class: "pays more", hidden: true, on: { click: () => this.writeOn() } });
      this.pays.after(this.more);
      this.aboutTitle = el("b");
      this.aboutText = el("span");
      this.price = el("span", { class: "why" });
      this.busy = el("span", { class: "why busy" });
      this.same.after(this.price, this.busy);
      this.why = el("p", { class: "cost" });
      notice.about.after(this.why);
      this.aboutMore = el("button", { class: "story", hidden: true, on: { click: () => this.board.caption?.press() } });
      setText(this.aboutMore, SV.messages.say("opening.more"));
      this.about = el("p", { class: "about", hidden: true }, this.aboutTitle, " ", this.aboutText, " ", this.aboutMore);
      this.large = el("button", { class: "pays large", hidden: true, on: { click: () => this.openLarge() } });
      this.more.after(this.large);
      this.root = el("div", { class: "hero" }, this.text, this.about, notice.root, this.dial.root);
    }
    /* v: {focus, base, race, empty, runs}; in a race the verdict stands here, which the ledger writes. */
    paint({ focus, base, race, empty, runs }) {
      this.text.hidden = race && !empty;
      const summary = empty || !focus ? null : say(focus, base === focus ? null : base, runs);
      setText(this.text, summary ? summary.text : "Several tokens can arrive from one pass of a large model.");
      setText(this.mark, summary ? summary.same : "");
      const failed = ["error", "cut"].includes(this.board.state);
      this.same.hidden = !summary || !summary.same || race || failed; /* an error and a tick contradict */
      this.same.classList.toggle("long", this.mark.textContent.length > LONG);
      const cost = summary && !race && !failed ? reason(focus, base, runs) : { pays: "", why: "" };
      this.describe(empty ? null : this.board.header(), cost.why);
      setText(this.price, cost.pays);
      setText(this.busy, empty ? "" : SV.timing.busyWords(this.board.list()));
      this.dial.paint(empty ? null : focus);
      this.offerMore(empty ? null : focus);
      this.offerLarge(empty ? null : this.board.header());
      this.tick.style.display = summary && summary.sure ? "" : "none";
      this.place.hidden = !summary || summary.at === null;
      this.at = summary && summary.at !== null ? { lane: focus, i: summary.at } : null;
    }
    /* What a shipped recording shows, in its own words; of any run that was no faster, why. */
    describe(header, why) {
      const { caption } = this.board,
        about = caption || (header && header.about) || null;
      this.about.hidden = !about;
      this.aboutMore.hidden = !caption;
      this.about.classList.toggle("caption", Boolean(caption));
      setText(this.aboutTitle, about ? about.title + "." : "");
      setText(this.aboutText, about ? about.text : "");
      setText(this.why, why);
    }
    /* The recording of a large model on a card, beside one of a small model; hidden until somebody has made it. */
    offerLarge(header) {
      const page = globalThis.SpecVizPage,
        large = page?.large || null;
      this.large.hidden = !large || header?.mode !== "recorded" || page.trace === large.name;
      if (large) setText(this.large, large.title);
    }
    openLarge() {
      globalThis.location.hash = "page=watch&trace=" + globalThis.SpecVizPage.large.name;
    }
    /* An answer that was cut by the limit can be written on: the same message once more, with twice the tokens. */
    offerMore(lane) {
      const page = globalThis.SpecVizPage,
        h = lane && lane.header,
        limit = (h && h.max_new_tokens) || 0;
      this.longer = Math.min(MOST_TOKENS, 2 * limit);
      const cut = Boolean(
        page?.run &&
        lane?.done &&
        lane.done.finish === "length" &&
        h.mode !== "recorded" &&
        !this.board.reopened &&
        this.longer > limit,
      );
      this.more.hidden = !cut;
      if (!cut) return;
      setText(this.more, SV.messages.say("limit.more", { longer: String(this.longer) }));
      setAttr(this.more, "title", SV.messages.say("limit.cut", { limit: String(limit) }));
    }
    writeOn() {
      globalThis.SpecVizPage.run({ follow: true, prompt: "", length: this.longer, tab: null });
    }
    go() {
      const t = this.at && this.at.lane.tokens[Math.min(this.at.i, this.at.lane.tokens.length - 1)];
      if (t) this.board.selectNode(this.at.lane.id, t.round, t.node);
    }
  }

  SV.headline = { Headline, say, reason };
})();
