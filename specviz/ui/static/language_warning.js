/* Beside the prompt, before a run: a model that was trained on few languages does not know the others, and that is said.
   props.languages: by the title of each target, the languages that it was trained on where they are few. */
const note = element.querySelector(".pg-unknown");
/** @type {[name: string, letters: RegExp][]} */
const NAMES = [
  ["emoji", /\p{Extended_Pictographic}/u],
  ["Arabic", /\p{Script=Arabic}/u],
  ["Hebrew", /\p{Script=Hebrew}/u],
  ["Chinese", /\p{Script=Han}/u],
  ["Japanese", /[\p{Script=Hiragana}\p{Script=Katakana}]/u],
  ["Korean", /\p{Script=Hangul}/u],
  ["Cyrillic", /\p{Script=Cyrillic}/u],
];
/* Languages in Latin script: a letter or a word that English has not names one, and so do two of its frequent words. */
/** @type {[name: string, letters: RegExp, words: RegExp][]} */
const LANGUAGES = [
  [
    "German",
    /[\u00e4\u00f6\u00fc\u00df]|\b(hallo|warum|wieso|danke|erz\u00e4hle?|schreibe?)\b/i,
    /\b(und|der|die|das|nicht|ist|ein|eine|mit|f\u00fcr|wie|wer|wo|wann|bist|hast|kannst|guten|bitte|ich|du|sie|mir)\b/gi,
  ],
  [
    "French",
    /[\u00e7\u0153]|\b(bonjour|pourquoi|merci|salut)\b/i,
    /\b(le|la|les|des|une|est|pour|avec|quel|quelle|tu|es|comment|\u00e9cris|je|vous|dans|sur|qui)\b/gi,
  ],
  [
    "Spanish",
    /[\u00f1\u00bf\u00a1]|\b(hola|gracias)\b/i,
    /\b(el|los|las|una|es|para|con|por|qu\u00e9|c\u00f3mo|qui\u00e9n|eres|escribe|yo|usted|del|que)\b/gi,
  ],
];
function languageOf(text) {
  const found = LANGUAGES.filter(([name]) => !reads().includes(name)).find(
    ([, letters, words]) => letters.test(text) || new Set(text.toLowerCase().match(words) || []).size >= 2,
  );
  return found ? found[0] : "";
}
const reads = () => window.SpecVizPage.ofTarget(props.languages) || "";
function paint() {
  const text = document.querySelector("#prompt textarea")?.value || "",
    found = NAMES.filter(([name, kind]) => !reads().includes(name) && kind.test(text)).map(([name]) => name);
  const seen = found.includes("Japanese") ? found.filter((name) => name !== "Chinese") : found;
  const language = seen.length ? "" : languageOf(text);
  note.hidden = !reads() || !(seen.length || language);
  note.dataset.message = note.hidden ? "" : seen.length ? "model.script" : "model.language";
  note.textContent = note.hidden
    ? ""
    : `This model was trained on ${reads()} only; ${seen.length ? seen.join(" and ") : language} it hardly knows, ` +
      "so the answer will mean little.";
}
document.addEventListener("input", (event) => event.target.closest?.("#prompt") && paint());
window.SpecVizPage.onTarget(paint);
paint();
