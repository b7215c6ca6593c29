/* The lanes as chips in the dock, what pays here beside them, and the page of all methods. The value is a JSON list of lanes: a
   key, or {method, knobs} where a lane has knobs of its own. A chip that cannot be chosen stays in reach and says why. */
const box = element.querySelector(".pg-pick");
const read = (text, other) => {
  try {
    return JSON.parse(text) ?? other;
  } catch {
    return other;
  }
};
const cards = props.cards,
  most = ((window.SpecVizPage ||= {}).most = props.most) /* links keep to it, too */,
  cardOf = (key) => cards.find((card) => card.key === key);
/* For Learn's cards: the drawing of a method's round, and what it shows. */
window.SpecVizPage.drawing = (key) =>
  cardOf(key) ? { drawn: glyph(cardOf(key).shape), says: SHAPES[cardOf(key).shape] } : null;
const lanes = () =>
  read(props.value, [])
    .map((x) => (typeof x === "string" ? { method: x, knobs: {} } : { method: x.method, knobs: x.knobs || {} }))
    .filter((lane) => cardOf(lane.method));
/* {method: why it cannot run on the chosen models}. An answer about others may come late: it is ignored. */
function off() {
  const { models, why } = read(props.off, {});
  return (models === window.SpecVizPage.chosenModels() && why) || {};
}
/* How much faster than plain decoding a method was measured to be, with the chosen models: greedy, or sampled. */
const speedOf = (card, sampled = Number(document.querySelector("#temperature input")?.value) > 0) =>
  (props.timed && !card.bound && card.speed?.[sampled ? 1 : 0]) || null;
/* The measured upper bound on every method's speed-up, on the card of the oracle. */
const limitOf = (card) => (props.timed && card.bound && card.speed?.[0]) || null;

/* Bytes as a person reads them. */
const size = (bytes) =>
  bytes >= 1e9
    ? (bytes / 1e9).toFixed(1) + " GB"
    : bytes >= 1e6
      ? (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0) + " MB"
      : Math.ceil(bytes / 1e3) + " kB";
/* What a method takes besides the large model, as measured: [bytes of weights, bytes of its cache]. */
function memoryIn(memory) {
  if (!memory) return "";
  const [weights, cache] = memory,
    parts = [
      weights ? size(weights) + " of weights" : "",
      cache ? size(cache) + " of draft cache after a short answer" : "",
    ].filter(Boolean);
  return (parts.join(", ") || "nothing") + " besides the large model";
}
/* The memory that a method was measured to take besides the large model, with the chosen models; "" if unknown. */
const memoryOf = (card) => (props.timed && memoryIn(card.memory)) || "";

let before = null; /* {one, was, temperature}: the preset that was pressed last, and what it replaced */
function set(list) {
  before = null;
  say("");
  const seen = new Set(),
    kept = list.filter((lane) => {
      const key = JSON.stringify([lane.method, Object.entries(lane.knobs).sort()]);
      return !seen.has(key) && seen.add(key);
    });
  props.value = JSON.stringify(
    kept.slice(0, most).map((lane) => (Object.keys(lane.knobs).length ? lane : lane.method)),
  );
  trigger("change");
  paint();
}
function state(key) {
  const count = lanes().filter((lane) => lane.method === key).length,
    locked = off()[key];
  if (locked) return { count, blocked: true, lock: true, why: locked };
  if (lanes().length >= most)
    return { count, blocked: true, lock: false, why: `${most} of ${most} methods are chosen: take one away first.` };
  return { count, blocked: false, lock: false, why: "" };
}
function add(key, knobs) {
  const now = lanes();
  const lane = knobs
    ? { method: key, knobs }
    : now.some((l) => l.method === key && !Object.keys(l.knobs).length)
      ? another(cardOf(key), now)
      : { method: key, knobs: {} };
  if (lane && !state(key).blocked) set([...now, lane]);
}
/* A preset replaces the lanes; pressed again, or with Escape, what stood there before comes back. */
const undo = {
  of: () => before?.one ?? null,
  take() {
    if (!before) return false;
    const { was, temperature } = before;
    before = null;
    set(was);
    if (temperature !== null) sendTemperature(temperature);
    return true;
  },
};
function sendTemperature(temperature) {
  window.SpecVizPage.pending = { temperature };
  window.SpecVizPage.send("input");
}
function preset(one) {
  if (before?.one === one) return undo.take();
  const able = one.methods.filter((key) => cardOf(key) && !off()[key]);
  if (!able.length) return false;
  const hot = typeof one.temperature === "number",
    now = Number(document.querySelector("#temperature input")?.value);
  const kept = {
    one,
    was: before ? before.was : lanes(),
    temperature: before?.temperature ?? (hot && Number.isFinite(now) ? now : null),
  };
  set(able.map((method) => ({ method, knobs: {} })));
  before = kept; /* any other change of the lanes forgets it */
  if (hot) sendTemperature(one.temperature);
}

const tray = trayOf({ most, cardOf, lanes, set, done: () => ((before = null), all.close()) });
const all = shelf({
  cards,
  families: props.families,
  where: props.where,
  speedOf,
  limitOf,
  memoryOf,
  presets: props.presets,
  state,
  add,
  preset,
  undo,
  tray: tray.root,
  closed: paint,
  async show({ show: choice, recording, text, figures, here }) {
    all.close();
    if (
      recording &&
      (await window.SpecVizPage.play(recording, { title: text.replace(/\.$/, ""), text: `${figures}. ${here}` }))
    )
      return;
    window.SpecVizPage.pending = { ...choice, draft: "" };
    window.SpecVizPage.send("input");
  },
});
const row = make("div", "pg-chips"),
  more = button("pg-more", "All methods", () => {
    trigger("focus");
    tray.paint();
    all.open(more);
  });
row.setAttribute("role", "group");
row.setAttribute("aria-label", "Methods to compare");
/* The keyboard scrolls the row to a chip that is cut off; without the keyboard the row begins at its start again. */
row.addEventListener("focusout", (event) => {
  if (!row.contains(event.relatedTarget)) row.scrollLeft = 0;
});
const why = make("p", "pg-why");
why.setAttribute("role", "status");
why.hidden = true;
box.append(row, why, all.page);
const say = (text) => {
  why.textContent = text;
  why.hidden = !text;
};

/* Why a method cannot be taken, with its name in front where the reason does not begin with it. */
const titled = (card, reason) => (reason.startsWith(card.title) ? reason : `${card.title}: ${reason}`);
function chip(card, lane, text, mark) {
  const on = Boolean(lane),
    { blocked, why: locked } = state(card.key);
  return still(JSON.stringify([card.key, lane, text, mark, !on && blocked, locked]), () => {
    const node = button("pg-chip", text, () => {
      if (on) set(lanes().filter((l) => JSON.stringify(l) !== JSON.stringify(lane)));
      else if (state(card.key).blocked) say(titled(card, state(card.key).why));
      else add(card.key);
    });
    node.dataset.key = card.key;
    node.setAttribute("aria-pressed", String(on));
    const fast = mark ? ` ${mark} the speed of plain decoding, as docs/bench.md has it.` : "";
    node.title = on ? `${card.summary} Press to take it away.` : locked || card.summary + fast;
    node.setAttribute("aria-disabled", String(!on && blocked));
    if (mark) node.append(make("small", "", mark));
    node.addEventListener("focus", () => trigger("focus"));
    return node;
  });
}
/* What is as it was stays the very same element, where it stands: a press that a repaint falls into would be lost with it. */
let standing = new Map(),
  next = new Map(),
  trayed = "";
function still(what, anew) {
  const node = standing.get(what) || anew();
  next.set(what, node);
  return node;
}
function place(nodes) {
  for (const old of [...row.children]) if (!nodes.includes(old)) old.remove();
  nodes.forEach((node, i) => row.children[i] === node || row.insertBefore(node, row.children[i] || null));
  [standing, next] = [next, new Map()];
}

function paint() {
  const now = lanes(),
    held = document.activeElement?.closest?.(".pg-chip")?.dataset.key;
  const twice = (lane) => now.filter((l) => l.method === lane.method).length > 1 || Object.keys(lane.knobs).length;
  const pays = cards
    .filter((card) => card.first && !card.bound && !off()[card.key] && !now.some((l) => l.method === card.key))
    .filter((card) => (speedOf(card) ?? 1) >= 1)
    .sort((a, b) => (speedOf(b) ?? 0) - (speedOf(a) ?? 0)) /* as measured; the order of the list where nothing is */
    .slice(0, 3);
  /* What is no faster than two runs of plain decoding differ is not said to pay. */
  const clear = pays.length > 0 && pays.every((card) => (speedOf(card) ?? 0) > 1 + (props.noise || 0));
  const word = (kind, text) => still(kind + text, () => make("span", kind, text));
  place([
    word("pg-word", "Lanes"),
    ...now.map((lane) => {
      const card = cardOf(lane.method);
      return chip(card, lane, card.title + (twice(lane) ? " \u00b7 " + knobWord(card, lane, now) : ""), "");
    }),
    more, // before what is offered: that changes with the models and the temperature, and the button must not move under a finger
    ...(pays.length ? [word("pg-word gap", clear ? "What pays" : "Try also")] : []),
    ...pays.map((card) => chip(card, null, card.title, speedOf(card) ? times(speedOf(card)) : "")),
  ]);
  if (held) [...row.querySelectorAll(".pg-chip")].find((node) => node.dataset.key === held)?.focus();
  const chosen = props.value + props.off + JSON.stringify(window.SpecVizPage.knobs);
  if (chosen !== trayed) tray.paint();
  trayed = chosen;
  if (!all.page.hidden) all.paint();
  box.dataset.lanes = props.value || "[]";
  box.dataset.on = now.map((lane) => lane.method).join(" ");
}
/* What is loaded now cannot run everything that was chosen: take that away rather than let the run fail. */
function drop() {
  const gone = lanes().filter((lane) => off()[lane.method]);
  if (!gone.length) return paint();
  set(lanes().filter((lane) => !off()[lane.method]));
  say(gone.map((lane) => titled(cardOf(lane.method), off()[lane.method])).join(" "));
}
watch(["value", "off", "timed"], drop);
document.addEventListener("input", (event) => event.target.closest?.("#temperature") && paint());
document.addEventListener("specviz:taken", () => setTimeout(paint, 150));
/* Methods are about to be chosen together with a target: what the last one could not run says nothing of it. */
document.addEventListener("specviz:othertarget", () => say(""));
document.addEventListener("specviz:models", paint);
paint();
