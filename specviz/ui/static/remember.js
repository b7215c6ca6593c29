/* A reload keeps the choices: methods, knobs, sampling and models, for this tab and as long as it is open. What a link says goes
   before it. No prompt is kept. */
(() => {
  const page = (window.SpecVizPage = window.SpecVizPage || {});
  const KEY = "specviz.choices.1";
  const FIELDS = {
    temperature: "temperature",
    top_p: "top-p",
    length: "length",
    seed: "seed",
    repeats: "repeats",
    prompts: "prompts",
  };
  const value = (id) => document.querySelector(`#${id} input`)?.value ?? "";

  /* What the controls hold; nothing before they stand. */
  function choices() {
    const lanes = document.querySelector(".pg-pick")?.dataset.lanes;
    if (!lanes) return null;
    const numbers = Object.entries(FIELDS)
      .filter(([, id]) => value(id) !== "")
      .map(([name, id]) => [name, Number(value(id))]);
    const target = page.titles?.[value("target")];
    return {
      ...Object.fromEntries(numbers),
      methods: JSON.parse(lanes),
      ...(Object.keys(page.knobs || {}).length ? { knobs: page.knobs } : {}),
      ...(Object.keys(page.generated || {}).length ? { generation: page.generated } : {}),
      ...(target ? { target } : {}),
    };
  }
  /* What the controls hold, for what changes them for a while only. */
  page.choices = () => choices() ?? {};
  addEventListener("pagehide", () => {
    try {
      const now = choices();
      if (now) sessionStorage.setItem(KEY, JSON.stringify(now));
    } catch {
      /* a browser that keeps nothing */
    }
  });

  /* What was chosen before a reload; {} where the page was opened anew. */
  page.remembered = () => {
    try {
      if (/** @type {PerformanceNavigationTiming} */ (performance.getEntriesByType("navigation")[0])?.type !== "reload")
        return {};
      const kept = JSON.parse(sessionStorage.getItem(KEY) || "{}");
      return kept && typeof kept === "object" && !Array.isArray(kept) ? kept : {};
    } catch {
      return {};
    }
  };
})();
