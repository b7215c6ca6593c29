/* One line of text from the server, shown as text. The value is JSON {text, state}. */
const line = element.querySelector(".pg-line");
function paint() {
  let told = {};
  try {
    told = JSON.parse(props.value) || {};
  } catch {
    /* nothing to say */
  }
  line.textContent = told.text || "";
  line.dataset.state = told.state || "";
  line.hidden = !told.text;
}
watch("value", paint);
paint();
