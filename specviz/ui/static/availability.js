/* Looks up what a link names: methods, and the models that this server was started with. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});

  /* A method that this page offers: the picker's own data, which Gradio keeps under props.props, and before 6.31 under props. */
  const cardOf = (lane) => {
    const key = typeof lane === "string" ? lane : lane?.method;
    const picker = window.gradio_config?.components?.find((c) => c.props?.elem_id === "methods")?.props;
    return (picker?.props?.cards ?? picker?.cards)?.find((card) => card.key === key);
  };
  /* Another server may have been started with another model, so links name the model itself; here the first one's value is "".
     A name of the hub is for the server to judge. */
  const modelOf = (name) =>
    page.models?.[name] ??
    (!name || Object.values(page.models || {}).includes(name) || name.includes("/") ? name : undefined);
  const titled = (lane) => (typeof lane === "string" ? lane : lane.method);
  const clip = (name) => (name.length > 60 ? name.slice(0, 59) + "\u2026" : name);

  /* What a choice names and this page does not have, in a sentence; "" where it has all of it. */
  page.lacks = (set) => {
    const model = typeof set.target === "string" && modelOf(set.target) === undefined,
      methods = Array.isArray(set.methods) ? set.methods.filter((lane) => !cardOf(lane)).map(titled) : [],
      missing = [
        model ? "model " + clip(set.target) : "",
        methods.length ? (methods.length > 1 ? "methods " : "method ") + methods.map(clip).join(", ") : "",
      ].filter(Boolean);
    if (!missing.length) return "";
    return `This page has no ${missing.join(" and no ")}: left out${model ? ", so another model answers" : ""}.`;
  };

  /* What is known of the chosen target, by the titles of all; the first one stands chosen before anybody chooses. */
  const ofTarget = (byTitle) => byTitle[document.querySelector("#target input")?.value || Object.keys(byTitle)[0]];
  /* Calls paint when another target is chosen, by hand or by a link: Gradio writes the field a moment after its event. */
  const onTarget = (paint) => {
    const soon = () => [150, 600].forEach((wait) => setTimeout(paint, wait));
    for (const name of ["input", "focusout"])
      document.addEventListener(name, (event) => event.target.closest?.("#target") && soon());
    for (const name of ["specviz:taken", "specviz:othertarget"]) document.addEventListener(name, soon);
  };

  /* The models that are chosen, by the name the server gives both: answers about others come late and are ignored. */
  let models = "";
  const chosenModels = () => models;
  const chooseModels = (target, draft) => {
    models = (target || "") + (draft ? "|" + draft : "");
    document.dispatchEvent(new CustomEvent("specviz:models"));
    return [target, draft];
  };

  Object.assign(page, { cardOf, modelOf, ofTarget, onTarget, chosenModels, chooseModels });
})();
