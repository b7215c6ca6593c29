/* Beside the prompt, before a run: a model that was trained on few scripts does not know the others, and that is said.
   props.scripts: by the title of each target, the scripts that it was trained on where they are few. */
const note = element.querySelector(".pg-unknown");
const NAMES = [
  ["emoji", /\p{Extended_Pictographic}/u],
  ["Arabic", /\p{Script=Arabic}/u],
  ["Hebrew", /\p{Script=Hebrew}/u],
  ["Chinese", /\p{Script=Han}/u],
  ["Japanese", /[\p{Script=Hiragana}\p{Script=Katakana}]/u],
  ["Korean", /\p{Script=Hangul}/u],
  ["Cyrillic", /\p{Script=Cyrillic}/u],
];
/* The chosen target's; the first one stands chosen before anybody chooses. */
const reads = () =>
  props.scripts[document.querySelector("#target input")?.value || Object.keys(props.scripts)[0]] || "";
function paint() {
  const text = document.querySelector("#prompt textarea")?.value || "",
    found = NAMES.filter(([name, kind]) => !reads().includes(name) && kind.test(text)).map(([name]) => name);
  const seen = found.includes("Japanese") ? found.filter((name) => name !== "Chinese") : found;
  note.hidden = !reads() || !seen.length;
  note.textContent = seen.length
    ? `This model does not know ${seen.join(" or ")}: it reads them as single bytes, ` +
      "and what it answers will mean little."
    : "";
}
document.addEventListener("input", (event) => event.target.closest?.("#prompt, #target") && paint());
document.addEventListener("focusout", (event) => event.target.closest?.("#target") && setTimeout(paint, 150));
document.addEventListener("specviz:taken", () => setTimeout(paint, 150));
paint();
