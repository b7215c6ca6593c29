/* The picture that a target reads before the prompt, shown for targets that read one: samples, an upload, and a switch that
   hides it from the target. props.samples: by the title of such a target, {shows, image}. The value is JSON {image,
   hide_image}. An uploaded file is drawn here, so that only its pixels are sent; the server reads and writes them anew. */
const SIDE = 96; /* pixels of the longer side of what is sent */
const root = element.querySelector(".pg-picture");
const make = (tag, name, text = "") => {
  const node = document.createElement(tag);
  node.className = name;
  node.textContent = text;
  return node;
};
const chosen = () => {
  try {
    const value = JSON.parse(props.value);
    return typeof value.image === "string" && value.image.startsWith("data:image/png;base64,") ? value : null;
  } catch {
    return null;
  }
};
/* A link, an example or a panel that chooses such a target and no picture runs with its first sample. */
(window.SpecVizPage = window.SpecVizPage || {}).sampleOf = (target) =>
  Object.hasOwn(props.titles, target) ? props.samples[props.titles[target]][0].image : "";
const offered = () => props.samples[document.querySelector("#target input")?.value] || null;

const whole = make("img", "pg-picwhole"),
  row = make("div", "pg-picrow"),
  load = make("button", "pg-picload", "Upload"),
  hide = make("label", "pg-pichide"),
  box = make("input", ""),
  file = make("input", ""),
  note = make("p", "pg-picnote");
whole.alt = "The picture that the large model sees";
row.setAttribute("role", "radiogroup");
row.setAttribute("aria-label", "Sample pictures");
load.type = "button";
box.type = "checkbox";
box.id = "hide-image";
hide.append(box, document.createTextNode("Hide the picture from the large model"));
file.type = "file";
file.accept = "image/png,image/jpeg,image/webp";
file.hidden = true;
note.setAttribute("role", "status");
const side = make("div", "pg-picside");
side.append(row, hide, note);
root.append(whole, side, file);

function put(image, hidden) {
  props.value = image ? JSON.stringify({ image, hide_image: hidden }) : "";
  trigger("input");
  paint();
}
load.addEventListener("click", () => file.click());
box.addEventListener("change", () => put(chosen()?.image || "", box.checked));
file.addEventListener("change", async () => {
  const given = file.files?.[0];
  file.value = "";
  if (!given) return;
  try {
    const picture = await createImageBitmap(given),
      scale = Math.min(1, SIDE / Math.max(picture.width, picture.height)),
      canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(picture.width * scale));
    canvas.height = Math.max(1, Math.round(picture.height * scale));
    const pen = canvas.getContext("2d");
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    note.textContent = "";
    put(canvas.toDataURL("image/png"), box.checked);
  } catch {
    note.dataset.message = "picture.unreadable";
    note.textContent = "This browser cannot read that file as a picture.";
  }
});

let drawn = null;
function thumbs(found) {
  if (drawn === found) return;
  drawn = found;
  row.replaceChildren(
    ...found.map(({ shows, image }) => {
      const button = make("button", "pg-pic"),
        small = document.createElement("img");
      button.type = "button";
      button.setAttribute("role", "radio");
      button.setAttribute("aria-label", shows);
      button.title = shows;
      small.src = image;
      small.alt = "";
      button.append(small);
      button.addEventListener("click", () => put(image, box.checked));
      return button;
    }),
    load,
  );
}
function paint() {
  const found = offered();
  root.hidden = !found;
  if (!found) {
    if (props.value) put("", false); /* another model reads no picture */
    return;
  }
  thumbs(found);
  const now = chosen();
  if (!now) return put(found[0].image, box.checked);
  whole.src = now.image;
  whole.hidden = found.some(({ image }) => image === now.image); /* a sample stands in the row already */
  whole.classList.toggle("unseen", now.hide_image === true);
  box.checked = now.hide_image === true;
  [...row.querySelectorAll(".pg-pic")].forEach((button, i) =>
    button.setAttribute("aria-checked", String(found[i].image === now.image)),
  );
}
document.addEventListener("focusin", (event) => {
  if (event.target.closest?.("#prompt"))
    document.querySelector("#page")?.setAttribute("data-asked", ""); /* it stays so: see page.css */
});
document.addEventListener("input", (event) => event.target.closest?.("#target") && setTimeout(paint, 150));
document.addEventListener("focusout", (event) => event.target.closest?.("#target") && setTimeout(paint, 150));
for (const name of ["specviz:taken", "specviz:othertarget"])
  document.addEventListener(name, () => [150, 600].forEach((wait) => setTimeout(paint, wait)));
watch(["value"], paint);
for (const wait of [0, 400]) setTimeout(paint, wait);
