/* Answers of the Lab kept in the visitor's own browser: the latest few under a name, each with the time it came. A browser that
   refuses storage simply keeps none. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const MAX_ANSWERS = 6,
    MAX_CHARACTERS = 400_000;

  function kept(name) {
    const key = "specviz." + name + ".1";
    const read = () => {
      try {
        const list = JSON.parse(localStorage.getItem(key) || "[]");
        return Array.isArray(list)
          ? list
              .filter((x) => x && typeof x.at === "string" && x.answer && typeof x.answer === "object")
              .slice(0, MAX_ANSWERS)
          : [];
      } catch {
        return [];
      }
    };
    function add(answer, now = new Date()) {
      const list = [{ at: now.toISOString(), answer }, ...read()].slice(0, MAX_ANSWERS);
      while (list.length && JSON.stringify(list).length > MAX_CHARACTERS) list.pop();
      try {
        localStorage.setItem(key, JSON.stringify(list));
      } catch {
        /* it stays on the page alone */
      }
      return list;
    }
    return { read, add };
  }

  P.savedAnswers = kept;
})();
