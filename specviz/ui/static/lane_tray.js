/* The chosen lanes at the foot of the page of all methods: what each is, its knobs, once more, away.
   A lane is {method, knobs}. */
/* What the settings hold for a method: a run takes it where the lane itself says nothing. */
const settled = (card) => window.SpecVizPage?.knobs?.[card.key] ?? {};
const usual = (card, knob) => settled(card)[knob.name] ?? knob.default;
/* The knobs in which a lane differs from its method's defaults or other lanes, or the first of them: "gamma 8". */
function knobWord(card, lane, lanes = []) {
  const held = (k) => lane.knobs[k.name] ?? usual(card, k),
    apart = (k) => lanes.some((one) => one.method === lane.method && (one.knobs[k.name] ?? usual(card, k)) !== held(k)),
    own = card.knobs
      .map((k) => [k.name, held(k), k.name in lane.knobs || usual(card, k) !== k.default || apart(k)])
      .filter(([, , differing]) => differing);
  const shown = own.length ? own : card.knobs.slice(0, 1).map((k) => [k.name, k.default]);
  return shown.map(([name, value]) => name.replaceAll("_", " ") + " " + SpecViz.stage.plain(value)).join(", ");
}
/* The knobs at which the method was published: those that are not the defaults here, and those that the settings hold otherwise;
   null where the defaults are it. */
function published(card) {
  const wanted = card.knobs.map((knob) => [knob, card.published?.[knob.name] ?? knob.default]),
    held = settled(card);
  if (wanted.every(([knob, value]) => value === knob.default)) return null;
  const differing = wanted.filter(([knob, value]) => value !== knob.default || knob.name in held);
  return Object.fromEntries(differing.map(([knob, value]) => [knob.name, value]));
}
/* The same method once more, with the first knob set to something that no lane of it has. */
function another(card, lanes) {
  for (const knob of card.knobs) {
    const had = lanes.filter((l) => l.method === card.key).map((l) => l.knobs[knob.name] ?? usual(card, knob));
    const whole = Number.isInteger(knob.default);
    const tries = knob.choices.length
      ? knob.choices
      : typeof knob.default === "boolean"
        ? [!knob.default]
        : typeof knob.default === "string"
          ? []
          : [knob.default * 2, knob.default / 2, knob.default * 3, knob.high, knob.low].map((x) =>
              whole ? Math.round(x) : +x.toPrecision(3),
            );
    const value = tries.find((x) => !had.includes(x) && (typeof x !== "number" || (x >= knob.low && x <= knob.high)));
    if (value !== undefined) return { method: card.key, knobs: { [knob.name]: value } };
  }
  return null;
}

function trayOf({ most, cardOf, lanes, set, done }) {
  const root = make("div", "pg-tray"),
    slots = make("div", "pg-slots"),
    say = make("div", "pg-traysay");
  root.append(say, slots, button("pg-done", "Use these", done));
  let open = -1;

  function slot(lane, i) {
    const card = cardOf(lane.method),
      node = make("div", "pg-slot"),
      words = make("div", "pg-slotwords"),
      keys = make("div", "pg-slotkeys");
    const knobs = button("pg-knobword", knobWord(card, lane, lanes()) || "no knobs", () => {
      open = open === i ? -1 : i;
      paint();
    });
    knobs.disabled = !card.knobs.length;
    knobs.setAttribute("aria-expanded", String(open === i));
    words.append(make("b", "", card.title), knobs);
    const more = another(card, lanes());
    const twice = button("", "\u29c9", () => set([...lanes(), more]));
    twice.title = "Once more, with another knob";
    twice.setAttribute("aria-label", card.title + " once more, with another knob");
    twice.disabled = !more || lanes().length >= most;
    const away = button("", "\u2715", () => {
      open = -1;
      set(lanes().filter((_, j) => j !== i));
    });
    away.setAttribute("aria-label", "Take " + card.title + " away");
    keys.append(twice, away);
    node.append(glyph(card.shape), words, keys);
    if (open === i) node.append(fields(card, lane, i));
    return node;
  }
  function fields(card, lane, i) {
    const box = make("div", "pg-fields");
    for (const knob of card.knobs) {
      const label = make("label", "", knob.name.replaceAll("_", " ")),
        now = lane.knobs[knob.name] ?? usual(card, knob);
      label.title = knob.help;
      const field = make(knob.choices.length ? "select" : "input");
      if (knob.choices.length)
        for (const choice of knob.choices) {
          const option = make("option", "", SpecViz.stage.plain(choice));
          option.value = choice;
          field.append(option);
        }
      else if (typeof knob.default === "boolean") field.type = "checkbox";
      else if (typeof knob.default === "string") Object.assign(field, { type: "text", maxLength: 200 });
      else
        Object.assign(field, {
          type: "number",
          min: knob.low,
          max: knob.high,
          step: Number.isInteger(knob.default) ? 1 : "any",
        });
      if (field.type === "checkbox") field.checked = now;
      else field.value = now;
      field.addEventListener("change", () => {
        const number = field.type === "number",
          value = field.type === "checkbox" ? field.checked : number ? Number(field.value) : field.value;
        if (number && (field.value === "" || !(value >= knob.low && value <= knob.high))) return (field.value = now);
        const rest = { ...lane.knobs, [knob.name]: value };
        if (value === usual(card, knob)) delete rest[knob.name];
        set(lanes().map((l, j) => (j === i ? { ...l, knobs: rest } : l)));
      });
      label.append(field);
      box.append(label);
    }
    const defaults = card.knobs.filter((knob) => knob.name in settled(card)).map((knob) => [knob.name, knob.default]);
    const to = (some) => {
        const knobs = { ...Object.fromEntries(defaults), ...some };
        set(lanes().map((l, j) => (j === i ? { ...l, knobs } : l)));
        paint(); /* what was typed and not taken goes, too */
      },
      keys = make("div", "pg-fieldkeys");
    if (published(card)) keys.append(button("", "As published", () => to(published(card))));
    keys.append(button("", "Defaults", () => to({})));
    box.append(keys);
    return box;
  }
  function paint() {
    const now = lanes();
    say.replaceChildren(
      make("b", "", `${now.length} of ${most} methods`),
      make("span", "", "plain decoding always runs beside them"),
    );
    slots.replaceChildren(
      ...now.map(slot),
      ...Array.from({ length: most - now.length }, (_, i) => make("div", "pg-slot none", i ? "" : "room for one more")),
    );
  }
  return { root, paint };
}
