/* Learn, first page: the idea as a story to scroll. A board of its own is the figure: it holds a shipped recording and stands
   where the reader is. The three lessons and the quiz hang on it. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const { el, setText } = SpecViz.dom;
  const K = P.kit;

  const header = (records) => records.find((r) => r && r.type === "header") || null;
  const temperature = (records) => Number(header(records)?.sampling?.temperature) || 0;
  const tells = (records) => {
    const s = P.story.story(P.traceLanes.lanes(records), null);
    return Boolean(s.plain && s.chain);
  };

  /* A recording of the library as records: the first whose temperature is (sampled) or is not above 0. */
  async function shipped(env, sampled) {
    const row = (await env.ctx.ask("library", {})).find((r) => r.temperature > 0 === sampled);
    if (!row) return null;
    const { records, why } = SpecViz.reader.read(await env.ctx.ask("library_trace", { name: row.name }));
    return why ? null : { name: row.name, records };
  }

  /* One figure: a board without its controls, made when a scene first needs it. */
  function figure() {
    const host = el("div", { class: "sv pn-board" });
    let api = null,
      last = "";
    return {
      host,
      fill(records) {
        api ??= SpecVizBoard.mount(host, { options: { autoplay: false, keys: false, plotly: false } });
        last = "";
        api.load(records);
      },
      stand(to) {
        const key = JSON.stringify(to);
        if (!api || !to || key === last) return;
        last = key;
        if (to.x === undefined) return api.goto(to);
        api.goto({ layout: to.layout });
        api.goto({ t: to.x * api.end() });
      },
      api: () => api,
      destroy: () => api?.destroy(),
    };
  }

  /* The scene that is read, and how far: the reader's eye is taken to be at `line` of the window's height. */
  function reading(list, line) {
    const y = innerHeight * line;
    let best = null;
    for (const s of list) {
      const r = s.root.getBoundingClientRect();
      if (!best || r.top <= y) best = { scene: s, x: K.clamp((y - r.top) / Math.max(1, r.height), 0, 1) };
    }
    return best;
  }

  const button = (text, on) => K.button(text, on, "quietly");

  function end(env) {
    const cards = P.lessons.tracks.map((t) =>
      el(
        "button",
        { type: "button", class: "pn-track", "data-track": t.key, on: { click: () => P.lessons.start(env, t.key) } },
        el("b", null, t.title),
        el("span", null, t.about),
        el("small", null, `${t.steps.length} steps on the real board`),
      ),
    );
    return el(
      "section",
      { class: "pn-storyend", "aria-label": "Go on" },
      el("h3", null, "Go on"),
      el("div", { class: "pn-tracks" }, cards),
      el(
        "div",
        { class: "pn-row" },
        K.button("Run it yourself", () => env.go("watch"), "primary"),
        K.button("Quiz: will the target accept?", () => env.panel.show("quiz")),
        K.button("All methods", () => env.panel.show("methods")),
      ),
    );
  }

  /* Which run it is, in a line. */
  function about(l) {
    const models = l.draftName ? `${l.targetName} with ${l.draftName}` : l.targetName,
      where = l.machine ? ` Recorded on ${l.machine}.` : "";
    return `The prompt: \u201c${K.say(l.prompt, 160)}\u201d. Models: ${K.say(models, 120)}.${K.say(where, 120)}`;
  }

  class Story {
    constructor(env) {
      this.env = env;
      this.figures = { greedy: figure(), drawn: figure() };
      this.traces = { greedy: null, drawn: null };
      this.from = el("p", { class: "pn-small" });
      this.prose = el("div", { class: "pn-prosecol" });
      this.stand = el(
        "div",
        { class: "pn-stand", role: "figure", "aria-label": "The recording, at the place the text speaks of" },
        this.figures.greedy.host,
        this.figures.drawn.host,
      );
      this.root = el(
        "div",
        { class: "pn-view pn-story" },
        K.head(
          "How one pass writes several tokens",
          K.lead("A story about one recorded run. Every number in it is read from the recording."),
          this.from,
        ),
        el("div", { class: "pn-storygrid" }, this.prose, this.stand),
        end(env),
      );
      this.scenes = [];
      this.write();
      this.moved = () => this.soon();
      document.addEventListener("scroll", this.moved, { capture: true, passive: true });
      addEventListener("resize", this.moved);
    }
    /* A board takes its colours from where it stands: it is made once the view is on the page. */
    update() {
      if (!this.begun && this.root.isConnected) {
        this.begun = true;
        this.fetch();
      }
      this.place();
    }
    /* What the page opened with is a shipped recording: it is there at once. Anything else comes from the library. */
    async fetch() {
      const { env } = this,
        here = env.records();
      if (header(here)?.mode === "recorded" && !temperature(here) && tells(here))
        this.take("greedy", { name: "", records: here });
      if (typeof env.ctx.ask !== "function") return;
      try {
        if (!this.traces.greedy) this.take("greedy", await shipped(env, false));
        this.take("drawn", await shipped(env, true));
      } catch {
        return; /* the words stand without their figure */
      }
    }
    take(kind, got) {
      if (!got || this.dead || (kind === "greedy" && !tells(got.records))) return;
      this.traces[kind] = { ...got, lanes: P.traceLanes.lanes(got.records) };
      this.figures[kind].fill(got.records);
      this.write();
      this.place();
    }
    write() {
      const { greedy, drawn } = this.traces,
        story = (this.story = P.story.story(greedy ? greedy.lanes : [], drawn ? drawn.lanes : null)),
        l = story.chain || story.plain;
      this.stand.hidden = !greedy;
      setText(this.from, l ? about(l) : "");
      this.scenes = P.story.scenes
        .filter((scene) => !scene.needs || scene.needs(story))
        .map((scene) => ({ scene, root: this.section(scene, story) }));
      this.prose.replaceChildren(...this.scenes.map((s) => s.root));
      this.current = null;
    }
    section(scene, story) {
      const track = P.lessons.tracks.find((t) => t.key === scene.track);
      return el(
        "section",
        { class: "pn-scene" + (scene.long ? " long" : ""), "data-scene": scene.key, "aria-label": scene.title },
        el(
          "div",
          { class: "pn-said" },
          el("h3", null, scene.title),
          scene.say(story).map((text) => el("p", null, text)),
          el(
            "div",
            { class: "pn-row" },
            this.traces[scene.sampled ? "drawn" : "greedy"]
              ? button("Open it on the board", () => this.open(scene))
              : null,
            scene.link ? button(scene.link[1], () => this.env.panel.show(scene.link[0])) : null,
            track ? button(`Lesson: ${track.title}`, () => P.lessons.start(this.env, track.key)) : null,
          ),
        ),
      );
    }
    /* The same place on the page's own board, with the recording that the story tells. */
    open(scene) {
      const { env } = this,
        trace = this.traces[scene.sampled ? "drawn" : "greedy"],
        to = scene.at(this.story, 1),
        here = env.records(),
        same = here.length === trace.records.length && header(here)?.run_id === header(trace.records).run_id;
      if (!same && env.ctx.board?.load) {
        env.ctx.board.load(trace.records);
        env.ctx.opened?.(trace.name);
      }
      if (to) env.show({ ...to, show: "node" in to }, to.layout);
    }
    soon() {
      this.frame ??= requestAnimationFrame(() => {
        this.frame = null;
        this.place();
      });
    }
    /* Bring the figure to where the reader is. */
    place() {
      if (this.dead || !this.root.clientWidth || !this.scenes.length) return;
      const above = this.env.panel.root.classList.contains("mid") /* the figure stands above the text, not beside it */,
        at = reading(this.scenes, above ? 0.75 : 0.4),
        { scene } = at.scene,
        kind = scene.sampled ? "drawn" : "greedy";
      if (this.current !== at.scene) {
        this.current = at.scene;
        for (const s of this.scenes) s.root.classList.toggle("now", s === at.scene);
        this.stand.dataset.part = scene.part;
        this.root.dataset.scene = scene.key;
        for (const [name, f] of Object.entries(this.figures)) f.host.hidden = name !== kind;
      }
      this.figures[kind].stand(scene.at(this.story, at.x));
    }
    destroy() {
      this.dead = true;
      document.removeEventListener("scroll", this.moved, { capture: true });
      removeEventListener("resize", this.moved);
      cancelAnimationFrame(this.frame);
      for (const f of Object.values(this.figures)) f.destroy();
    }
  }

  function view(env) {
    const story = new Story(env);
    return {
      root: story.root,
      update: () => story.update(),
      destroy: () => story.destroy(),
      story,
    };
  }

  (P.views = P.views || {}).start = view;
})();
