/* The Lab: four questions, and the experiments that answer each. Some need nothing but the trace on the board; most ask
   the engine; one reads what the drafts here carry of their training. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  const QUESTIONS = [
    {
      key: "why",
      title: "Why does it pay?",
      line: "The price of a pass, and what a guess earns",
      ways: [
        { key: "predict", title: "Predicted and measured", line: "The formula, the clock, the gap" },
        { key: "cost", title: "The price of a pass", line: "Why several tokens cost little" },
        { key: "killers", title: "Right text, low acceptance", line: "Mistakes as switches; runs the engine" },
        { key: "contexts", title: "Long texts", line: "Measured, and a model beyond; runs the engine" },
        { key: "scaling", title: "What training buys", line: "Acceptance over tokens and sizes" },
      ],
    },
    {
      key: "if",
      title: "What if?",
      line: "Other settings, another drafter, another machine",
      ways: [
        { key: "whatif", title: "Other settings", line: "Other settings, same recording" },
        { key: "dial", title: "Another drafter", line: "A set acceptance, run for real; runs the engine" },
        { key: "hardware", title: "Another machine", line: "A model, not a measurement" },
      ],
    },
    {
      key: "mine",
      title: "On my machine and prompts?",
      line: "Runs the engine",
      ways: [
        { key: "prompts", title: "Your prompts", line: "A set raced as one; runs the engine" },
        { key: "verify", title: "How much to verify", line: "Adaptive verification and others; runs the engine" },
        { key: "sweep", title: "Turn one knob", line: "Where it is fastest; runs the engine" },
        { key: "grid", title: "Length and temperature", line: "Speed cell by cell; runs the engine" },
        { key: "load", title: "Under load", line: "Many users at once; runs the engine" },
      ],
    },
    {
      key: "exact",
      title: "Is it exact?",
      line: "Distributions, and mistakes put in on purpose",
      ways: [
        { key: "distribution", title: "Same distribution?", line: "Counts against the distribution; runs the engine" },
        { key: "breakit", title: "Break it", line: "Classic mistakes; runs the engine" },
        { key: "batched", title: "Alone and in a batch", line: "One row, other passes; runs the engine" },
        { key: "mask", title: "Mask and draft", line: "Structured output, three ways; runs the engine" },
      ],
    },
  ];
  P.kinds = { ...(P.kinds || {}), lab: { label: "Questions", items: QUESTIONS } };
})();
