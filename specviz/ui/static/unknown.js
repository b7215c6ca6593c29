/* Beside the prompt, before a run: the embedded target was trained on English and code alone, and what it does not
   know is said. */
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
function paint() {
  const text = document.querySelector("#prompt textarea")?.value || "",
    own = !document.querySelector("#target input")?.value.includes("/"),
    found = NAMES.filter(([, kind]) => kind.test(text)).map(([name]) => name);
  const seen = found.includes("Japanese") ? found.filter((name) => name !== "Chinese") : found;
  note.hidden = !own || !seen.length;
  note.textContent = seen.length
    ? `The embedded model does not know ${seen.join(" or ")}: it reads them as single bytes, ` +
      "and what it answers will mean little."
    : "";
}
document.addEventListener("input", (event) => event.target.closest?.("#prompt") && paint());
document.addEventListener("specviz:taken", () => setTimeout(paint, 150));
paint();
