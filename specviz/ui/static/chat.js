/* Earlier turns, in the colours they were written in. The value is JSON {turns, shown}; text is only ever text. */
const root = element.querySelector(".pg-chat");
const make = (tag, name, text) => {
  const node = document.createElement(tag);
  node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
};
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/g;
const plain = (text) => text.replace(HIDDEN, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

function turn(t, index, shown) {
  const item = make("li", "pg-turn");
  const question = make("p", "pg-question", plain(t.question));
  const answer = make("p", "pg-answer");
  for (const [text, verdict] of t.pieces) {
    const lead =
      text.length - text.trimStart().length; /* the line under a word does not reach into the space before it */
    const span = make("span", "", plain(text.slice(lead)));
    span.dataset.verdict = verdict;
    answer.append(text.slice(0, lead), span);
  }
  const foot = make("div", "pg-turnfoot");
  foot.append(make("span", "", t.lane));
  if (t.open) {
    const open = make("button", "", shown === index ? "shown below" : "open below");
    open.type = "button";
    open.disabled = shown === index;
    open.setAttribute("aria-label", `Show turn ${index + 1} on the board`);
    open.addEventListener("click", () => {
      trigger("select", { turn: index });
      document.getElementById("board")?.scrollIntoView({ block: "nearest" });
    });
    foot.append(open);
  }
  item.append(question, answer, foot);
  return item;
}

function paint() {
  let data = { turns: [] };
  try {
    data = JSON.parse(props.value) || data;
  } catch {
    /* an empty conversation */
  }
  root.replaceChildren(...data.turns.map((t, i) => turn(t, i, data.shown)));
  root.hidden = !data.turns.length;
  root.dataset.turns = String(data.turns.length);
  const shown = /** @type {HTMLElement} */ (root.children[data.shown] || root.lastElementChild);
  if (shown) root.scrollTop = shown.offsetTop - 12;
}
watch("value", paint);
paint();
