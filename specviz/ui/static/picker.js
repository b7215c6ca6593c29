/* Method chips: real checkboxes, so that keyboard and screen readers work by themselves. The value is a JSON list of keys.
   Folded, one chip a family and whatever is chosen; unfolded, every method under its family. Only textContent is written.
   A chip that cannot be chosen stays in reach of the keyboard and of a finger, so that everybody can be told why. */
const box = element.querySelector(".pg-pick");
const make = (tag, name, text = "") => {
  const node = document.createElement(tag);
  node.className = name;
  node.textContent = text;
  return node;
};
const read = (text, other) => {
  try {
    return JSON.parse(text) ?? other;
  } catch {
    return other;
  }
};
const chips = make("div", "pg-chips"),
  hint = make("p", "pg-hint"),
  more = make("button", "pg-more");
chips.setAttribute("role", "group");
chips.setAttribute("aria-label", "Methods to compare");
hint.setAttribute("aria-live", "polite");
more.type = "button";
more.addEventListener("click", () => {
  box.classList.toggle("all");
  trigger("focus");
  paint();
});
box.append(chips, hint);

const cards = props.cards,
  most = props.most,
  inputs = new Map(),
  families = new Map();
let pointed = null;

for (const card of cards) {
  if (!families.has(card.family)) {
    const family = make("div", "pg-family");
    family.append(make("span", "pg-familyname", card.family));
    families.set(card.family, family);
    chips.append(family);
  }
  families.get(card.family).append(chip(card));
}
const few = cards.length <= props.fold;
box.classList.toggle("few", few);
if (!few) chips.append(more);

function chip(card) {
  const label = make("label", "pg-chip"),
    input = make("input", "");
  label.dataset.key = card.key;
  input.type = "checkbox";
  label.append(input, make("span", "", card.title));
  if (card.baseline) label.append(make("small", "", "always"));
  inputs.set(card.key, input);
  input.addEventListener("click", (event) => {
    if (input.getAttribute("aria-disabled") === "true") event.preventDefault();
  });
  input.addEventListener("change", choose);
  const point = () => {
    pointed = card;
    paint();
  };
  const leave = (event) => {
    if (pointed === card && event.pointerType !== "touch") {
      pointed = null;
      paint();
    }
  };
  label.addEventListener("pointerenter", point);
  label.addEventListener("pointerleave", leave);
  input.addEventListener("focus", point);
  input.addEventListener("blur", leave);
  return label;
}

function choose() {
  props.value = JSON.stringify(cards.filter((c) => !c.baseline && inputs.get(c.key).checked).map((c) => c.key));
  trigger("change");
  paint();
}

function state(card, on, off) {
  if (card.baseline)
    return { checked: true, blocked: true, why: "Always measured, so that a speed-up is not assumed." };
  const checked = on.includes(card.key);
  if (off[card.key]) return { checked: false, blocked: true, why: off[card.key] };
  if (!checked && on.length >= most)
    return { checked, blocked: true, why: `${most + 1} lanes at most: take one away first.` };
  return { checked, blocked: false, why: "" };
}

function paint() {
  const on = read(props.value, []),
    off = read(props.off, {}),
    all = few || box.classList.contains("all");
  for (const card of cards) {
    const s = state(card, on, off),
      input = inputs.get(card.key),
      label = input.parentElement;
    input.checked = s.checked;
    input.setAttribute("aria-disabled", String(s.blocked));
    input.title = s.why;
    label.dataset.off = card.baseline ? "baseline" : off[card.key] ? "unavailable" : s.blocked ? "full" : "";
    label.hidden = !(all || s.checked || card.first || card.baseline);
  }
  const s = pointed && state(pointed, on, off);
  more.textContent = all ? "Fewer" : `All ${cards.length} methods`;
  more.setAttribute("aria-expanded", String(all));
  hint.textContent = !pointed
    ? props.hint
    : s.why
      ? `${pointed.title}: ${s.why}`
      : `${pointed.title}: ${pointed.summary}`;
  box.dataset.on = on.join(" ");
}
/* What is loaded now cannot run everything that was chosen: take that away rather than let the run fail. */
function drop() {
  const on = read(props.value, []),
    off = read(props.off, {}),
    gone = cards.find((card) => on.includes(card.key) && off[card.key]);
  if (gone) {
    pointed = gone;
    props.value = JSON.stringify(on.filter((key) => !off[key]));
    trigger("change");
  }
  paint();
}
watch(["value", "off"], drop);
paint();
