/* Keyboard: space, arrows, home, end, brackets. Never while someone types. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));

  function handle(board, e) {
    if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey) return;
    const t = e.target,
      tag = t && t.tagName;
    if (tag === "INPUT" || tag === "TEXTAREA" || tag === "SELECT" || (t && t.isContentEditable)) return;
    const onButton = tag === "BUTTON" || (t && t.getAttribute && t.getAttribute("role") === "tab");
    const list = SV.transport.SPEEDS.map(([v]) => v),
      at = list.indexOf(board.ui.speed);
    const act = {
      " ": () => !onButton && (board.toggle(), true),
      ArrowLeft: () => (e.shiftKey ? board.stepPhase(-1) : board.stepBy(-1), true),
      ArrowRight: () => (e.shiftKey ? board.stepPhase(1) : board.stepBy(1), true),
      ArrowUp: () => sibling(board, -1),
      ArrowDown: () => sibling(board, 1),
      Home: () => (board.edge(0), true),
      End: () => (board.edge(1), true),
      "[": () => (board.setSpeed(list[Math.max(0, at - 1)]), true),
      "]": () => (board.setSpeed(list[Math.min(list.length - 1, at + 1)]), true),
      "+": () => size(board, 1.25),
      "=": () => size(board, 1.25),
      "-": () => size(board, 0.8),
      0: () => size(board, 0),
      m: () => (board.setMarks(!board.ui.marks), true),
      M: () => (board.setMarks(!board.ui.marks), true),
      Escape: () => ((board.ui.sel = null), (board.ui.filter = null), board.later(), true),
    }[e.key];
    if (act && act() !== false) e.preventDefault();
  }

  function size(board, k) {
    const i = board.inspector;
    if (i.zoom.keys.hidden || !i.root.contains(document.activeElement)) return false;
    if (k) i.zoom.by(k);
    else i.zoom.fit();
    return true;
  }

  /* Up and down walk the nodes of the round in the inspector; only where the inspector has the focus, or pages could
     not scroll. */
  function sibling(board, d) {
    const v = board.inspector.v;
    if (!v || !v.round || !board.inspector.root.contains(document.activeElement)) return false;
    const ids = [...v.round.nodes.map((n) => n.id), ...(v.round.commit ? ["tail"] : [])];
    const i = ids.indexOf(v.sel);
    board.ask(v.lane.id, v.round.i, ids[Math.max(0, Math.min(ids.length - 1, i + d))], true);
    return true;
  }

  SV.keys = { handle };
})();
