/* Settings, below the list of models: what the chosen one is, and the languages it knows where they are few.
   props.about: {title of a target: {about, languages}}; a model that was typed in has no entry. */
const about = element.querySelector(".pg-about");
function paint() {
  const field = document.querySelector("#target input"),
    found = props.about[field?.value || Object.keys(props.about)[0]];
  about.textContent = found
    ? [found.about, found.languages && found.languages + " only."].filter(Boolean).join(" ")
    : "";
  about.hidden = !about.textContent;
}
document.addEventListener("input", (event) => event.target.closest?.("#target") && setTimeout(paint, 150));
document.addEventListener("focusout", (event) => event.target.closest?.("#target") && setTimeout(paint, 150));
for (const name of ["specviz:taken", "specviz:othertarget"])
  document.addEventListener(name, () => [150, 600].forEach((wait) => setTimeout(paint, wait)));
for (const wait of [0, 400]) setTimeout(paint, wait);
