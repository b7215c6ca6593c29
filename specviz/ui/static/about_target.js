/* Settings, below the list of models: what the chosen one is, and the languages it knows where they are few.
   props.about: {title of a target: {about, languages}}; a model that was typed in has no entry. */
const about = element.querySelector(".pg-about");
function paint() {
  const found = window.SpecVizPage.ofTarget(props.about);
  about.textContent = found
    ? [found.about, found.languages && found.languages + " only."].filter(Boolean).join(" ")
    : "";
  about.hidden = !about.textContent;
}
window.SpecVizPage.onTarget(paint);
for (const wait of [0, 400]) setTimeout(paint, wait);
