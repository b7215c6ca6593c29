/* While a run streams: tells the server twice a second which frame was painted last, so that it does not outrun this browser. */
setInterval(() => {
  const root = element.querySelector(".sv");
  if (root?.dataset.state === "live" && !document.hidden)
    requestAnimationFrame(() => trigger("select", { frame: Number(root.dataset.seq) }));
}, 500);
