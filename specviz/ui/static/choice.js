/* One of a few, as buttons in a row. The value is the choice; ``off`` a JSON object choice -> why it cannot be taken just now.
   Such a choice is grey and stays in reach of the keyboard and of a finger, so that everybody can read why. */
const make = (tag, name, text = "") => {
  const node = document.createElement(tag);
  node.className = name;
  node.textContent = text;
  return node;
};
const read = (text) => {
  try {
    return JSON.parse(text) || {};
  } catch {
    return {};
  }
};
const root = element.querySelector(".pg-choice"),
  id = props.about;
const name = make("span", "pg-choicename", props.title),
  row = make("div", "pg-choicerow"),
  note = make("p", "pg-choicenote");
name.id = id + "-name";
note.id = id + "-note";
row.setAttribute("role", "radiogroup");
row.setAttribute("aria-labelledby", name.id);
row.setAttribute("aria-describedby", note.id);
const buttons = props.choices.map((choice) => {
  const button = make("button", "", props.names[choice] || choice);
  button.type = "button";
  button.dataset.choice = choice;
  button.setAttribute("role", "radio");
  button.addEventListener("click", () => take(choice));
  for (const [on, what] of [
    ["pointerenter", choice],
    ["focus", choice],
    ["pointerleave", ""],
    ["blur", ""],
  ])
    button.addEventListener(on, (event) => {
      if (event.pointerType !== "touch") point(what);
    });
  return button;
});
row.append(...buttons);
root.append(name, row, note);

let pointed = "";
function point(choice) {
  pointed = choice;
  paint();
}
function take(choice) {
  pointed = choice; /* a finger has no other way to ask why */
  if (!(choice in read(props.off)) && choice !== props.value) {
    props.value = choice;
    trigger("input");
  }
  paint();
}
row.addEventListener("keydown", (event) => {
  const at = buttons.indexOf(document.activeElement),
    step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || at < 0) return;
  event.preventDefault();
  event.stopPropagation();
  const next = buttons[(at + step + buttons.length) % buttons.length];
  next.focus();
  take(next.dataset.choice);
});
function paint() {
  const off = read(props.off),
    asked = document.activeElement;
  for (const button of buttons) {
    const choice = button.dataset.choice,
      on = choice === props.value;
    button.setAttribute("aria-checked", String(on));
    button.setAttribute("aria-disabled", String(choice in off));
    button.title = off[choice] || "";
    button.tabIndex = (buttons.includes(asked) ? button === asked : on) ? 0 : -1;
  }
  note.textContent = off[pointed] || props.help;
  note.dataset.state = off[pointed] ? "error" : "";
}
watch(["value", "off"], paint);
paint();
