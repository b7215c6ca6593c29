/* The page of all methods, over the tabs: search, families, a row a method, and its card beside the list. Text is only ever
   text. shelf({cards, ..., show}) gives {open, paint}; a card's state(key) is {count, blocked, why}; speedOf(card, sampled):
   how much faster than plain decoding it was measured to be, or null; limitOf(card): the same of an upper bound, which is no
   method's speed; memoryOf(card): what it takes, in words. */
const make = (tag, name = "", text = "") => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text) node.textContent = text;
  return node;
};
const button = (name, text, press) => {
  const node = make("button", name, text);
  node.type = "button";
  node.addEventListener("click", press);
  return node;
};
const plain = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "");
const times = (x) => "\u00d7" + (x >= 1.095 ? x.toFixed(1) : x.toFixed(2));
const TEXTS = {
  exact: "The same as plain decoding: the same text, and when sampling the same probabilities.",
  "greedy only": "The same as plain decoding; it works at temperature 0 only.",
};
const SHAPES = {
  one: "each pass gives one token",
  chain: "each pass checks a chain",
  tree: "each pass checks a tree",
  block: "a whole block guessed at once",
  copy: "guesses are copied",
  grid: "many positions at once",
  layers: "fewer of its own layers",
  server: "an engine that others run",
};

/* Where the search found it: a name that others use, an engine that offers it or a model that brings what it needs is shown. */
function found(card, families, query) {
  const q = plain(query);
  if (!q) return { note: "" };
  const named = (names) => names.find((name) => (q.length > 2 && plain(name).includes(q)) || q.startsWith(plain(name)));
  const alias = card.aliases.find((name) => plain(name).includes(q)),
    engine = named(card.engines),
    model = named(card.models);
  const text = [
    card.title,
    card.key,
    card.summary,
    card.family,
    families[card.family] || "",
    card.paper,
    ...card.knobs.map((k) => k.name),
  ];
  if (alias) return { note: " = " + alias };
  if (engine || model) return { note: engine ? " in " + engine : " for " + model };
  return text.some((part) => plain(part || "").includes(q)) ? { note: "" } : null;
}

function speedMark(speed, limit) {
  const mark = make("span", "pg-mark");
  if (limit !== null) {
    mark.classList.add("no");
    mark.textContent = SpecViz.messages.say("methods.bound", { times: times(limit) });
    return mark;
  }
  if (speed === null) {
    mark.classList.add("no");
    mark.textContent = "not measured";
    return mark;
  }
  const bar = make("span", "pg-bar"),
    fill = make("i"),
    reach = Math.min(40, Math.abs(speed - 1) * 60);
  mark.classList.toggle("slow", speed < 1);
  fill.style.width = reach + "px";
  fill.style.left = (speed < 1 ? 24 - Math.min(24, reach) : 24) + "px";
  if (speed < 1) fill.style.width = Math.min(24, reach) + "px";
  bar.append(fill);
  mark.append(bar, make("b", "", times(speed)));
  return mark;
}

/* A paper's text with its arXiv numbers as links. */
function paperLinks(text) {
  const out = [];
  let at = 0;
  for (const m of String(text || "").matchAll(/\b(\d{4}\.\d{4,5})\b/g)) {
    const link = make("a", "", m[1]);
    Object.assign(link, { href: "https://arxiv.org/abs/" + m[1], target: "_blank", rel: "noopener noreferrer" });
    out.push(text.slice(at, m.index), link);
    at = m.index + m[0].length;
  }
  return [...out, String(text || "").slice(at)];
}

/* A claim of the paper, its verdict here, and a button that plays the pair of the largest effect, or fills two lanes with it. */
function claimOf(claim, show) {
  const node = make("div", "pg-claim"),
    verdict = make("span", "pg-verdict", claim.verdict);
  verdict.dataset.verdict = claim.verdict;
  node.append(make("p", "", claim.text), verdict);
  for (const text of [claim.figures, claim.why, claim.paper && "The paper: " + claim.paper])
    if (text) node.append(make("span", "", text));
  if (claim.show) node.append(button("pg-as", "Show it", () => show(claim)));
  return node;
}
/* The share of some methods' claims that are shown here. */
const shownOf = (card) => card.claims.filter((claim) => claim.verdict === "shown").length;
function shownShare(some) {
  return some.reduce((sum, card) => sum + shownOf(card), 0) / Math.max(1, some.flatMap((card) => card.claims).length);
}

function shelf(given) {
  const { cards, families, where, speedOf, limitOf, memoryOf, presets, state, add, preset, undo } = given,
    { tray, closed, show } = given;
  const page = make("div", "pg-shelf"),
    head = make("div", "pg-shelfhead"),
    search = make("input"),
    count = make("span", "pg-count"),
    list = make("div", "pg-list"),
    nav = make("nav", "pg-nav"),
    side = make("aside", "pg-card"),
    rows = new Map(),
    chips = new Map(),
    sections = new Map();
  let pointed = cards[0],
    among = null /* the preset that the list is narrowed to */,
    opener = null;
  page.hidden = true;
  page.setAttribute("role", "dialog");
  page.setAttribute("aria-modal", "true");
  page.setAttribute("aria-label", "All methods");
  search.type = "search";
  search.placeholder = "Name, idea, engine or model: ngram, medusa, vLLM, Qwen3";
  search.setAttribute("aria-label", "Search the methods");
  count.setAttribute("role", "status");
  nav.setAttribute("aria-label", "Families");
  side.setAttribute("aria-live", "polite");
  list.setAttribute("role", "group");
  list.setAttribute("aria-label", "Methods");
  const first = make("div", "pg-shelfline"),
    second = make("div", "pg-presets");
  first.append(make("h2", "", "All methods"), search, count, button("pg-close", "\u2715", close));
  first.lastChild.setAttribute("aria-label", "Close");
  /* A chip of the first group chooses lanes, and a second press takes that back; one of the second group only narrows the
     list. */
  for (const [title, kind, some, press] of [
    ["Start from", "pg-choose", presets.filter((one) => !one.among.length), preset],
    ["Show only", "pg-filter", presets.filter((one) => one.among.length), narrow],
  ]) {
    if (!some.length) continue;
    const group = make("div", "pg-presetgroup");
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", title);
    group.append(make("span", "", title));
    for (const one of some) {
      const chip = button("pg-chip " + kind, one.name, () => {
        press(one);
        paint();
      });
      chips.set(one, chip);
      group.append(chip);
    }
    second.append(group);
  }
  const byShown = button("pg-chip", "Shown claims first", () => {
    const on = byShown.getAttribute("aria-pressed") !== "true";
    byShown.setAttribute("aria-pressed", String(on));
    order(on);
  });
  byShown.setAttribute("aria-pressed", "false");
  byShown.title = "Sort families and methods by the claims of their papers that are shown here";
  second.append(byShown);
  const measured = make("span", "pg-where"),
    machine = where.split(",", 2).join(","); /* "Some Processor, 2 cores" */
  measured.title = where;
  second.append(measured);
  head.append(first, second);
  const body = make("div", "pg-shelfbody");
  body.append(nav, list, side);
  page.append(head, body, tray);

  for (const card of cards) {
    if (card.baseline) continue;
    if (!sections.has(card.family)) {
      const section = make("section"),
        name = make("h3", "", card.family),
        grid = make("div", "pg-rows");
      section.append(name, make("p", "", families[card.family] || ""), grid);
      const link = button("", card.family, () => section.scrollIntoView({ block: "start" }));
      link.append(make("span", "", String(cards.filter((c) => c.family === card.family).length)));
      nav.append(link);
      list.append(section);
      sections.set(card.family, { section, grid, link });
    }
    sections.get(card.family).grid.append(row(card));
  }

  function order(shown) {
    const members = (family) => cards.filter((card) => card.family === family && !card.baseline),
      share = (family) => (shown ? -shownShare(members(family)) : 0);
    for (const [family, { section, grid, link }] of [...sections].sort(([a], [b]) => share(a) - share(b))) {
      const some = members(family).sort((a, b) => (shown ? shownOf(b) - shownOf(a) : 0));
      grid.append(...some.map((card) => rows.get(card.key).node));
      list.append(section);
      nav.append(link);
    }
  }
  function row(card) {
    const node = button("pg-row", "", () => {
      const narrow = matchMedia("(max-width: 760px)").matches;
      if (narrow && pointed !== card) return point(card); /* the first tap tells, the second takes */
      if (narrow && page.contains(side)) return point(card);
      point(card);
      if (!state(card.key).blocked) add(card.key);
    });
    const title = make("span", "pg-title", card.title),
      also = make("span", "pg-also");
    node.dataset.key = card.key;
    title.append(also);
    node.append(glyph(card.shape), title, speedMark(speedOf(card), limitOf(card)));
    node.addEventListener("pointerenter", (event) => event.pointerType !== "touch" && point(card));
    node.addEventListener("focus", () => !matchMedia("(max-width: 760px)").matches && point(card));
    rows.set(card.key, { node, also, mark: node.lastChild });
    return node;
  }

  function narrow(one) {
    among = among === one ? null : one;
    search.value = "";
    paint();
  }
  function point(card) {
    pointed = card;
    tell();
  }
  function tell() {
    const card = pointed,
      s = state(card.key),
      facts = make("dl");
    const fact = (name, text) => text && facts.append(make("dt", "", name), make("dd", "", text));
    fact("Wins", card.wins);
    fact("Loses", card.loses);
    fact("Needs", card.needs.join(", ") || "nothing but the large model");
    fact("Text", TEXTS[card.exactness] || "May differ from plain decoding.");
    fact(
      "Measured",
      speedOf(card, false)
        ? times(speedOf(card, false)) +
            " greedy" +
            (speedOf(card, true) ? "; " + times(speedOf(card, true)) + " at temperature 1" : "") +
            ", on " +
            machine
        : limitOf(card)
          ? SpecViz.messages.say("methods.bound", { times: times(limitOf(card)) }) + ", on " + machine
          : "not for this model",
    );
    fact("Memory", memoryOf(card));
    fact("Called", card.aliases.join(", "));
    fact("Offered by", card.engines.join(", "));
    fact("Here", card.differs);
    const title = make("div", "pg-cardhead"),
      names = make("div");
    names.append(make("h3", "", card.title), make("span", "", card.family + " \u00b7 " + SHAPES[card.shape]));
    title.append(glyph(card.shape), names);
    const take = button("pg-add", s.count ? "Add again" : "Add as a lane", () => add(card.key));
    take.disabled = s.blocked;
    const go = make("div", "pg-go"),
      own = published(card);
    go.append(take);
    if (own) {
      const as = button("pg-as", "Add as published", () => add(card.key, own));
      as.disabled = s.blocked;
      as.title = Object.entries(own)
        .map(([name, value]) => name.replaceAll("_", " ") + " " + value)
        .join(", ");
      go.append(as);
    }
    const source = make("span", "", s.why);
    if (!s.why) source.append(...paperLinks(card.paper));
    go.append(source);
    const claims = card.claims.map((claim) => claimOf(claim, show));
    if (claims.length) claims.unshift(make("h4", "", card.claims.length > 1 ? "Claims" : "Claim"));
    side.replaceChildren(title, make("p", "", card.summary), ...claims, facts, go);
    for (const [key, { node }] of rows) node.classList.toggle("cur", key === card.key);
    if (matchMedia("(max-width: 760px)").matches) rows.get(card.key)?.node.after(side);
    else if (side.parentElement !== body) body.append(side);
  }

  function paint() {
    let n = 0;
    const all = cards.filter((c) => !c.baseline),
      any = all.some((c) => speedOf(c) !== null);
    measured.textContent = any
      ? `bar: speed, measured on ${machine}; right of the notch is faster than plain decoding`
      : where
        ? "speeds were measured for another model"
        : "";
    for (const card of all) {
      const hit = among && !among.among.includes(card.key) ? null : found(card, families, search.value),
        s = state(card.key),
        held = rows.get(card.key),
        { node, also } = held,
        mark = speedMark(speedOf(card), limitOf(card));
      held.mark.replaceWith(mark);
      held.mark = mark;
      node.hidden = !hit;
      n += hit ? 1 : 0;
      const alias = among && card.aliases.find((name) => plain(name) !== plain(card.title));
      also.textContent = hit ? hit.note || (alias ? " = " + alias : "") : "";
      node.setAttribute("aria-pressed", String(Boolean(s.count)));
      node.setAttribute("aria-disabled", String(s.blocked));
      node.classList.toggle("lock", s.lock);
      mark.hidden = s.lock;
      node.title = s.why;
      node.dataset.lock = s.lock ? "cannot run here" : "";
      node.setAttribute(
        "aria-label",
        [
          card.title,
          SHAPES[card.shape],
          speedOf(card) ? times(speedOf(card)) + " as measured" : mark.textContent,
          s.why,
        ]
          .filter(Boolean)
          .join(", "),
      );
    }
    for (const [one, chip] of chips) {
      const reasons = one.methods.map((key) => state(key)).filter((s) => s.lock),
        none =
          one.methods.length > 0 && reasons.length === one.methods.length; /* nothing of it can run on these models */
      chip.setAttribute("aria-pressed", String(one.among.length ? among === one : undo.of() === one));
      chip.setAttribute("aria-disabled", String(none));
      chip.title = none ? reasons[0].why : one.about || "";
    }
    for (const { section, grid } of sections.values())
      section.hidden = ![...grid.querySelectorAll(".pg-row")].some((r) => !r.hidden);
    count.textContent =
      among || search.value
        ? n === 1
          ? "1 method"
          : n
            ? n + " methods"
            : "Nothing is called that here."
        : SpecViz.messages.say("methods.count", { methods: String(SpecViz.metrics.methodsOf(cards).length) });
    const shown = all.find((c) => !rows.get(c.key).node.hidden);
    if (rows.get(pointed.key)?.node.hidden !== false && shown) pointed = shown;
    tell();
  }
  search.addEventListener("input", () => {
    among = null;
    paint();
  });
  page.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const seen = [...rows.values()].map((r) => r.node).filter((node) => !node.hidden),
      at = seen.indexOf(document.activeElement);
    if (event.key === "Escape") {
      if (search.value && document.activeElement === search) {
        search.value = "";
        paint();
      } else if (among) {
        among = null;
        paint();
      } else if (undo.take()) paint();
      else close();
    } else if (event.key === "/" && document.activeElement !== search) search.focus();
    else if (event.key === "ArrowDown" && seen.length) seen[Math.min(seen.length - 1, at + 1)].focus();
    else if (event.key === "ArrowUp" && at >= 0) (at ? seen[at - 1] : search).focus();
    else if (event.key === "Tab") return keepIn(event);
    else return;
    event.preventDefault();
  });
  /* Tab goes round within the page while it is open. */
  function keepIn(event) {
    const all = [...page.querySelectorAll("button, input, select")].filter(
        (node) => node.offsetParent && !node.disabled,
      ),
      to = event.shiftKey ? all[all.length - 1] : all[0],
      edge = event.shiftKey ? all[0] : all[all.length - 1];
    if (document.activeElement !== edge) return;
    event.preventDefault();
    to.focus();
  }
  function open(from) {
    opener = from;
    page.hidden = false;
    document.documentElement.classList.add("pg-still");
    paint();
    search.focus();
  }
  function close() {
    if (page.hidden) return;
    page.hidden = true;
    among = null;
    search.value = "";
    document.documentElement.classList.remove("pg-still");
    closed();
    opener?.focus();
  }
  return { page, open, close, paint };
}
