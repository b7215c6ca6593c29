/* While a run streams: reports to the server which frame was painted last, so that it does not outrun this browser, and how often
   it is painted here: frames in between would only be taken from the engine. Where cores are few the report is rarer, too. */
setInterval(
  () => {
    const root = /** @type {HTMLElement} */ (element.querySelector(".sv"));
    if (root?.dataset.state === "live" && !document.hidden)
      requestAnimationFrame(() =>
        trigger("select", { frame: Number(root.dataset.seq), every: root.svBoard?.board.paintRate.beat(0) }),
      );
  },
  (navigator.hardwareConcurrency || 4) <= 2 ? 1000 : 500,
);
