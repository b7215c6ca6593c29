/* One line of text from the server, shown as text. The value is JSON {text, state, models}; a line about models other than the
   chosen ones came late and is not shown. Where a chosen model could not be loaded the models' line offers the embedded one. */
const line = element.querySelector(".pg-line");
const embedded = document.createElement("button");
embedded.type = "button";
embedded.className = "pg-embedded";
embedded.textContent = "Use the embedded model";
embedded.addEventListener("click", () => {
  window.SpecVizPage.pending = { target: "", draft: "" };
  window.SpecVizPage.send("input");
});
function paint() {
  let data = {};
  try {
    data = JSON.parse(props.value) || {};
  } catch {
    /* nothing to say */
  }
  if (data.models !== undefined && data.models !== window.SpecVizPage.chosenModels()) return;
  line.textContent = data.text || "";
  const share = data.state === "loading" && /(\d{1,3})%/.exec(data.text || "");
  line.style.setProperty("--share", share ? share[1] + "%" : "0%");
  line.dataset.state = data.state || "";
  line.hidden = !data.text;
  if (data.state === "error" && line.closest("#models")) line.append(" ", embedded);
}
watch("value", paint);
document.addEventListener("specviz:models", paint);
paint();
