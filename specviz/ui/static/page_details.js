/* Small duties of the whole page: what the tab is called, a skip link, the closed settings out of the way of the keyboard, the
   prompt in sight as the first one to run, and the footer. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});
  const NAME = "specviz";
  const TITLES = {
    watch: "Watch one method",
    race: "Race of methods",
    lab: "Lab",
    learn: "Learn",
    traces: "Traces",
  };
  const TEXTS = {
    "skip.link": "Skip to the prompt",
    "prompt.long": (count, most) => `The prompt has ${count} characters; the limit is ${most}.`,
    "settings.close": "Close the settings",
    "foot.papers": "Papers",
    "foot.project": "This project",
    "foot.about": "specviz shows speculative decoding as it runs: every guess, every verdict, every pass.",
  };
  const FOOT = [
    ["Leviathan et al. 2023", "https://arxiv.org/abs/2211.17192"],
    ["Chen et al. 2023", "https://arxiv.org/abs/2302.01318"],
    ["SpecInfer, trees of guesses", "https://arxiv.org/abs/2305.09781"],
    ["A survey", "https://arxiv.org/abs/2401.07851"],
  ];
  const FILES = [
    ["Source and documentation", "README.md"],
    ["How to cite it", "CITATION.cff"],
    ["Licence (Apache-2.0)", "LICENSE"],
    ["Changes", "CHANGELOG.md"],
  ];
  const make = (tag, name, text) => {
    const node = document.createElement(tag);
    node.className = name;
    node.textContent = text;
    return node;
  };

  /* ---- titles ---- */
  const titled = (tab) => (document.title = (TITLES[tab] || "Speculative decoding, made visible") + " \u00b7 " + NAME);
  document.addEventListener("specviz:tab", (event) => titled(/** @type {CustomEvent} */ (event).detail));

  /* ---- the first press of Run ---- */
  /* An empty box and no conversation: the prompt that is shown runs. It is put into the box before the press reaches it. */
  function fillPrompt() {
    const box = document.querySelector("#prompt textarea"),
      turns = Number(document.querySelector(".pg-chat")?.dataset.turns || 0),
      shown = page.asked?.(),
      recorded = page.restored || page.board?.()?.trace?.()[0]?.mode === "recorded";
    if (!box || box.value.trim() || turns || !shown || !recorded) return;
    box.value = shown;
    box.dispatchEvent(new Event("input", { bubbles: true }));
  }
  const onRun = (event) => event.target.closest?.("#run") && fillPrompt();
  document.addEventListener("pointerdown", onRun, true);
  document.addEventListener("focusin", onRun, true);

  /* ---- a prompt that is too long ---- */
  /* Refused here: the server answers a text that is too large for it with a status, of which the page can only say "Error". */
  function refuseLong(event) {
    const box = document.querySelector("#prompt textarea"),
      count = box?.value.trim().length ?? 0,
      pressed =
        event.type === "click"
          ? event.target.closest?.("#run")
          : event.target === box && event.key === "Enter" && !event.shiftKey;
    if (!pressed || !(count > page.mostCharacters)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const line = /** @type {HTMLElement} */ (document.querySelector("#notice .pg-line"));
    line.textContent = TEXTS["prompt.long"](count.toLocaleString("en"), page.mostCharacters.toLocaleString("en"));
    line.dataset.state = "error";
    line.hidden = false;
  }
  document.addEventListener("click", refuseLong, true);
  document.addEventListener("keydown", refuseLong, true);

  /* ---- settings ---- */
  const side = () => document.getElementById("settings");
  const isOpen = () => Boolean(side()?.classList.contains("open"));
  const toggle = () => side()?.querySelector(".toggle-button")?.click();
  function guard() {
    const content = side()?.querySelector(".sidebar-content"),
      button = side()?.querySelector(".toggle-button");
    if (!content || !button) return false;
    const sync = () => {
      content.inert = button.inert = !isOpen();
    };
    button.setAttribute("aria-label", TEXTS["settings.close"]);
    button.append(make("span", "pg-shut", "Close"));
    new MutationObserver(sync).observe(side(), { attributes: true, attributeFilter: ["class"] });
    sync();
    return true;
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || !isOpen()) return;
    toggle();
    document.getElementById("open-settings")?.focus();
  });

  /* ---- the dock ---- */
  /* One row until somebody writes a prompt. It folds when a press or the focus lands outside, so never under a pointer. */
  const use = (on) => document.getElementById("dock")?.classList.toggle("used", on);
  const typing = (event) => Boolean(event.target.closest?.("#prompt"));
  const outside = (event) => Boolean(event.target.closest) && !event.target.closest("#dock");
  for (const name of ["focusin", "pointerdown"])
    document.addEventListener(name, (event) => {
      if (name === "focusin" && typing(event)) use(true);
      else if (outside(event)) use(false);
    });
  document.addEventListener(
    "input",
    (event) => event.isTrusted && typing(event) && use(true),
  ); /* Run fills the field under the pointer */
  /* A run begins: its answer needs the room, also that of the open settings. */
  const foldSoon = () =>
    setTimeout(() => {
      use(false);
      if (document.querySelector("#dock.open"))
        /** @type {HTMLElement | null} */ (document.querySelector(".pg-set"))?.click();
    });
  document.addEventListener("click", (event) => event.target.closest?.("#run") && foldSoon());
  document.addEventListener("keydown", (event) => {
    if (typing(event) && event.key === "Enter" && !event.shiftKey) foldSoon();
  });

  /* ---- skip link and footer ---- */
  function skip() {
    const link = make("a", "pg-skip", TEXTS["skip.link"]);
    link.href = "#prompt";
    link.addEventListener("click", (event) => {
      event.preventDefault();
      document.querySelector("#prompt textarea")?.focus();
    });
    document.body.prepend(link);
  }
  function linksTo(name, places) {
    const links = make("nav", "", name + ": ");
    links.setAttribute("aria-label", name);
    for (const [text, href] of places) {
      const link = make("a", "", text);
      Object.assign(link, { href, target: "_blank", rel: "noopener noreferrer" });
      links.append(link, " ");
    }
    return links;
  }

  function foot() {
    const root = make("footer", "pg-foot", "");
    root.append(
      make("p", "", TEXTS["foot.about"]),
      linksTo(TEXTS["foot.papers"], FOOT),
      linksTo(
        TEXTS["foot.project"],
        FILES.map(([text, file]) => [text, (window.gradio_config?.root ?? "") + "/own/" + file]),
      ),
    );
    document.getElementById("page")?.after(root);
  }

  function begin() {
    if (!document.getElementById("page") || !guard()) return setTimeout(begin, 100);
    skip();
    foot();
    titled(page.tab);
  }
  if (document.readyState === "complete") begin();
  else addEventListener("load", begin);
  Object.assign(page, { fillPrompt });
})();
