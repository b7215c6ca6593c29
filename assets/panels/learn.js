/* Learn: from the story to the words. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});
  P.kinds = {
    ...(P.kinds || {}),
    learn: {
      label: "Chapters",
      items: [
        { key: "start", title: "Start here", line: "A story to scroll, and three lessons" },
        { key: "methods", title: "Methods", line: "A card for each" },
        { key: "server", title: "Which one for my server?", line: "Methods and exact flags" },
        { key: "formula", title: "How fast should it be?", line: "The formula, with live numbers" },
        { key: "numbers", title: "Numbers by other names", line: "What papers call them" },
        { key: "draftgame", title: "Be the draft", line: "Ten guesses, judged by the target" },
        { key: "quiz", title: "Quiz", line: "Will the target accept?" },
        { key: "glossary", title: "Words", line: "Every term in a sentence" },
        { key: "present", title: "Present", line: "Large type, keyboard only" },
      ],
    },
  };
})();
