/* The headline: what this run comes to, in one sentence, and whether the text is the same. From the folded trace alone. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, svg, setText, count } = SV.dom;
  const { firstDifference, over, busy } = SV.verdict;
  const M = SV.metrics,
    AS_FAST = 1.05 /* nearer than this is no difference that anybody would feel */,
    ENOUGH = 8 /* passes of a lane, for a price of a pass to be more than chance */,
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
      ended = over(lane) && (!base || over(base)),
      doubt = busy(base ? [lane, base] : [lane]);
    if (lane.error || own.at !== null || SV.serverFacts.is(lane)) return own;
    return { ...own, text: SV.batch.headline(lane, base, ended, doubt) || own.text };
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
    const k = busy([lane, base]) || m.implausible ? null : m.walltime_speedup,
      noise = Boolean(m.spread && SV.verdict.verdict([lane, base], runs)?.level),
      much = m.spread
        ? SV.messages.say("headline.fast.median", { runs: String(m.spread.runs) })
        : SV.messages.say("headline.fast"),
      slow =
        k !== null && k * AS_FAST < 1
          ? SV.messages.say("headline.slower", { times: k.toFixed(2) })
          : SV.messages.say("headline.no_faster"),
      level = noise ? `no clear difference in speed in ${m.spread.runs} runs` : slow,
      faster = k >= AS_FAST && !noise,
      fast = k === null ? "" : faster ? k.toFixed(1) + much : level;
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
    const end = !fast
      ? busy([lane, base]) || m.implausible
        ? "same text, times not counted."
        : "same text."
      : faster
        ? fast + ", same text."
        : "same text, but " + fast + ".";
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

  /* Why fewer passes were no faster: what a pass over guesses costs beside a plain one, and the share of the time that guessing
     took. Empty where it was faster, where times are doubtful or of too few passes, and where one of both is not known. */
  function reason(lane, base, runs) {
    if (!base || M.isBaseline(lane) || !over(lane) || !over(base) || busy([lane, base]) || SV.serverFacts.is(lane))
      return "";
    const m = M.of(lane, lane.committed, base, runs),
      plain = M.of(base, base.committed),
      [drafting, verifying] = m.parts,
      all = m.parts.reduce((sum, part) => sum + part, 0);
    if (!(m.walltime_speedup < AS_FAST) || m.implausible || !all || !plain.parts[1]) return "";
    if (Math.min(m.passes, plain.passes) < ENOUGH) return "";
    return SV.messages.say("headline.reason", {
      times: (verifying / m.passes / (plain.parts[1] / plain.passes)).toFixed(1),
      share: String(Math.round((100 * drafting) / all)),
    });
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
      notice.say.after(this.pays);
      this.more = el("button", { class: "pays more", hidden: true, on: { click: () => this.writeOn() } });
      this.pays.after(this.more);
      this.aboutTitle = el("b");
      this.aboutText = el("span");
      this.why = el("span", { class: "why" });
      this.about = el("p", { class: "about", hidden: true }, this.aboutTitle, " ", this.aboutText, " ", this.why);
      this.root = el("div", { class: "hero" }, this.text, this.about, notice.root);
    }
    /* v: {focus, base, race, empty, runs}; in a race the verdict stands here, which the ledger writes. */
    paint({ focus, base, race, empty, runs }) {
      this.text.hidden = race && !empty;
      const summary = empty || !focus ? null : say(focus, base === focus ? null : base, runs);
      setText(this.text, summary ? summary.text : "Several tokens can arrive from one pass of a large model.");
      setText(this.mark, summary ? summary.same : "");
      this.same.hidden = !summary || !summary.same || race;
      this.same.classList.toggle("long", this.mark.textContent.length > LONG);
      this.describe(empty ? null : this.board.header(), summary && !race ? reason(focus, base, runs) : "");
      this.offerMore(empty ? null : focus);
      this.tick.style.display = summary && summary.sure ? "" : "none";
      this.place.hidden = !summary || summary.at === null;
      this.at = summary && summary.at !== null ? { lane: focus, i: summary.at } : null;
    }
    /* What a shipped recording shows, in its own words; of any run that was no faster, why. */
    describe(header, why) {
      const about = (header && header.about) || null;
      this.about.hidden = !about && !why;
      setText(this.aboutTitle, about ? about.title + "." : "");
      setText(this.aboutText, about ? about.text : "");
      setText(this.why, why);
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
      if (cut) setText(this.more, SV.messages.say("limit.more", { limit: String(limit), longer: String(this.longer) }));
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
