/* Inside Gradio: js_on_load gives `element` and `watch`. One board for the component's life; the value is a string of
   frames, a short window while a run streams. */
SpecVizBoard.attach = function (element, watch, props, options) {
  "use strict";
  const root = element.querySelector(".sv") || element;
  const board = root.svBoard || SpecVizBoard.mount(root, { options });
  root.svBoard = board;
  const push = () => {
    const v = props && props.value;
    if (typeof v === "string" && v) board.push(v);
  };
  watch("value", push);
  push();
  return board;
};
