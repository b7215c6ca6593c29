/* Three lesson tracks that drive the board. A step says something true of the trace that lies there: it looks for a round
   that shows it, moves the board to it, and fills its numbers in. A step that finds no such round says so. */
(() => {
  "use strict";
  const P = (globalThis.SpecVizPanels = globalThis.SpecVizPanels || {});

  P.lessons = {
    tracks: [
      {
        key: "several",
        title: "Why several tokens at once",
        about: "From one token a pass to a draft, a check and a bonus.",
        steps: P.tracks.several,
      },
      {
        key: "sampling",
        title: "Why the text stays the same",
        about: "Sampling: how a guess is kept or rejected without changing the probabilities.",
        steps: P.tracks.sampling,
      },
      {
        key: "pays",
        title: "When it pays",
        about: "Acceptance, the price of a guess, the text and the machine.",
        steps: P.tracks.pays,
      },
    ],
  };
})();
