/* One line of text from the server, shown as text. The value is JSON {text, state}. Where a chosen model could not be loaded the
   models' line offers the embedded one. */
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
  line.textContent = data.text || "";
  line.dataset.state = data.state || "";
  line.hidden = !data.text;
  if (data.state === "error" && line.closest("#models")) line.append(" ", embedded);
}
watch("value", paint);
paint();
