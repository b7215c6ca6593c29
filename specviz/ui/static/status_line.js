/* One line of text from the server, shown as text. The value is JSON {text, state}. */
const line = element.querySelector(".pg-line");
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
}
watch("value", paint);
paint();
