/* The page opens on the first scenes of Learn's story: the recording moves through them while a line under the headline says what
   is seen. They end after the last one or with the first press, and the recording plays on. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});
  const SCENES = ["open", "plain", "guess", "check", "kept", "refused"],
    STEP = 7000 /* ms that a scene stands */,
    BEAT = 200; /* ms between two looks at where it is */
  const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
  let pressed = false;
  for (const name of ["pointerdown", "keydown"])
    addEventListener(name, () => (pressed = true), { capture: true, once: true });

  /* Whether nobody asked for anything else: no link, no press, the first recording on Watch. */
  const fresh = (board) =>
    !pressed &&
    !location.search &&
    ["", "#page=watch"].includes(location.hash) &&
    page.tab === "watch" &&
    board.trace()[0]?.mode === "recorded";

  /* board: its api. */
  page.opening = async (board) => {
    if (still() || !board || !fresh(board)) return;
    await page.need(page.story);
    const {
        story: { story, scenes },
        traceLanes,
      } = window.SpecVizPanels,
      own = board.board.header(),
      shown = story(traceLanes.lanes(board.trace()), null),
      list = SCENES.map((key) => scenes.find((scene) => scene.key === key)).filter((scene) => scene?.at(shown, 0));
    if (!fresh(board) || !shown.plain || !shown.chain || !list.length) return;
    let passed = 0,
      last = "",
      before = performance.now(),
      there = null;

    function show() {
      const scene = list[Math.min(list.length - 1, Math.floor(passed / STEP))],
        to = scene.at(shown, (passed % STEP) / STEP),
        key = JSON.stringify(to);
      if (key === last) return;
      last = key;
      there = to;
      board.goto(to);
      board.caption({ title: scene.title, text: scene.say(shown)[0], press: () => page.go("learn") });
    }
    function beat() {
      const now = performance.now();
      if (!document.hidden) passed += Math.min(now - before, 5 * BEAT);
      before = now;
      if (board.board.header() !== own || page.tab !== "watch") end(false);
      else if (passed >= list.length * STEP) end(true);
      else show();
    }
    /* on: whether the recording plays on from here. */
    function end(on) {
      clearInterval(timer);
      removeEventListener("pointerdown", leave, true);
      removeEventListener("keydown", leave, true);
      board.caption(null);
      if (!on) return;
      board.goto({ lane: shown.chain.id, round: there.lane === shown.chain.id ? there.round : 0, phase: 4 });
      board.play();
    }
    /* A press on the board is about what it shows: it stays there. */
    const leave = (event) => end(!event.target.closest?.("#board"));
    addEventListener("pointerdown", leave, true);
    addEventListener("keydown", leave, true);
    const timer = setInterval(beat, BEAT);
    show();
  };
})();
