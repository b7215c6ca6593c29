/* The Lab: its experiments, one at a time. Some need nothing but the trace on the board; most ask the engine; one reads what the
   drafts here carry of their training. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  /* Four questions, and what answers each. */
  const QUESTIONS = {
    "What if?": [
      { key: "whatif", title: "What if?", line: "Other settings, same recording" },
      { key: "hardware", title: "Another machine", line: "A model, not a measurement" },
    ],
    "Why does it pay?": [
      { key: "cost", title: "The price of a pass", line: "Why several tokens cost little" },
      { key: "predict", title: "Predicted and measured", line: "The formula, the clock, the gap" },
      { key: "contexts", title: "Long texts", line: "Measured, and a model beyond; runs the engine" },
      { key: "scaling", title: "What training buys", line: "Acceptance over tokens and sizes" },
    ],
    "On my machine and prompts?": [
      { key: "prompts", title: "Your prompts", line: "A set raced as one; runs the engine" },
      { key: "sweep", title: "Turn one knob", line: "Where it is fastest; runs the engine" },
      { key: "grid", title: "Length and temperature", line: "Speed cell by cell; runs the engine" },
      { key: "load", title: "Under load", line: "Many users at once; runs the engine" },
    ],
    "Is it exact?": [
      { key: "distribution", title: "Same distribution?", line: "Counts against the distribution; runs the engine" },
      { key: "breakit", title: "Break it", line: "Classic mistakes; runs the engine" },
      { key: "mask", title: "Mask and draft", line: "Structured output, three ways; runs the engine" },
    ],
  };
  const ITEMS = Object.entries(QUESTIONS).flatMap(([group, items]) => items.map((item) => ({ ...item, group })));
  P.kinds = { ...(P.kinds || {}), lab: { label: "Experiments", items: ITEMS } };
})();
