/* Method chips: real checkboxes, so that keyboard and screen readers work by themselves. The value is a JSON list of keys.
   Everything is written with textContent. */
const box = element.querySelector(".pg-pick");
const chips = document.createElement("div");
chips.className = "pg-chips";
chips.setAttribute("role", "group");
chips.setAttribute("aria-label", "Methods to compare");
const hint = document.createElement("p");
hint.className = "pg-hint";
hint.setAttribute("aria-live", "polite");
box.append(chips, hint);

const cards = props.cards, most = props.most, inputs = new Map();
const read = (text, other) => { try { return JSON.parse(text) ?? other; } catch { return other; } };
const chosen = () => read(props.value, []);
let pointed = null;

for (const card of cards) {
  const label = document.createElement("label"), input = document.createElement("input"), name = document.createElement("span");
  label.className = "pg-chip";
  label.dataset.key = card.key;
  input.type = "checkbox";
  name.textContent = card.title;
  label.append(input, name);
  if (card.baseline) {
    const tag = document.createElement("small");
    tag.textContent = "always";
    label.append(tag);
  }
  chips.append(label);
  inputs.set(card.key, input);
  input.addEventListener("change", () => {
    const on = cards.filter((c) => !c.baseline && inputs.get(c.key).checked).map((c) => c.key);
    props.value = JSON.stringify(on);
    trigger("change");
    paint();
  });
  const point = () => { pointed = card; paint(); };
  const leave = () => { if (pointed === card) { pointed = null; paint(); } };
  label.addEventListener("pointerenter", point);
  label.addEventListener("pointerleave", leave);
  label.addEventListener("click", () => { pointed = card; paint(); });
  input.addEventListener("focus", point);
  input.addEventListener("blur", leave);
}

function state(card, on, off) {
  if (card.baseline) return { checked: true, blocked: true, why: "" };
  const checked = on.includes(card.key);
  if (off[card.key]) return { checked: false, blocked: true, why: off[card.key] };
  if (!checked && on.length >= most) return { checked, blocked: true, why: `${most + 1} lanes at most: take one away first.` };
  return { checked, blocked: false, why: "" };
}

function paint() {
  const on = chosen(), off = read(props.off, {});
  for (const card of cards) {
    const s = state(card, on, off), input = inputs.get(card.key), label = input.parentElement;
    input.checked = s.checked;
    input.disabled = s.blocked;
    label.title = s.why;
    label.dataset.off = card.baseline ? "baseline" : off[card.key] ? "unavailable" : s.blocked ? "full" : "";
  }
  const s = pointed && state(pointed, on, off);
  hint.textContent = !pointed ? props.hint : s.why ? `${pointed.title}: ${s.why}` : `${pointed.title}: ${pointed.summary}`;
  box.dataset.on = on.join(" ");
}
watch(["value", "off"], paint);
paint();
