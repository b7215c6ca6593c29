/* The settings of a run as one line, "96 tokens, greedy"; a press opens the fields. */
const button = element.querySelector(".pg-set");
const field = (id) => document.querySelector(`#${id} input`)?.value ?? "";
const dock = () => document.getElementById("dock");
function paint() {
  const temperature = Number(field("temperature")),
    top = Number(field("top-p")),
    repeats = Number(field("repeats")),
    prompts = Number(field("prompts")),
    answers = Number(field("request-n"));
  const parts = [
    field("length") + " tokens",
    temperature > 0
      ? "temperature " + temperature + (top < 1 ? ", top-p " + top : "") + ", seed " + field("seed")
      : "greedy",
    repeats > 1 ? repeats + " runs each" : "",
    prompts > 1 ? prompts + " prompts at once" : "",
    answers > 1 ? answers + " answers" : "",
  ];
  const open = Boolean(dock()?.classList.contains("open"));
  button.textContent = parts.filter(Boolean).join(" \u00b7 ") + (open ? " \u25b4" : " \u25be");
  button.setAttribute("aria-expanded", String(open));
}
button.addEventListener("click", () => {
  dock()?.classList.toggle("open");
  paint();
});
document.addEventListener("input", (event) => {
  if (event.target.closest?.("#sampling, #request-n")) paint();
});
/* a link or a panel fills the fields without an event of theirs */
document.addEventListener("specviz:taken", () => setTimeout(paint, 120));
/* how much of the board the dock covers */
const covers = new ResizeObserver(([{ target }]) =>
  document
    .getElementById("page")
    ?.style.setProperty("--sv-below", /** @type {HTMLElement} */ (target).offsetHeight + "px"),
);
for (const wait of [0, 800])
  setTimeout(() => {
    paint();
    if (dock()) covers.observe(dock());
  }, wait);
