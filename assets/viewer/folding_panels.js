/* What a race shows only when asked: a panel's head stays, the rest opens with a press. Watch shows its panels open. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { el, setText } = SV.dom;

  class Shut {
    constructor(panel, head, what, changed) {
      this.panel = panel;
      this.changed = changed;
      this.word = el("span");
      this.key = el("button", { class: "opens", type: "button", "aria-label": what }, this.word);
      head.append(this.key);
      head.addEventListener("click", (e) => {
        if (!e.target.closest("button:not(.opens)")) this.set(panel.classList.contains("shut"));
      });
      this.set(false);
    }
    set(open) {
      this.panel.classList.toggle("shut", !open);
      this.key.setAttribute("aria-expanded", String(open));
      setText(this.word, open ? "Hide \u25b4" : "Show \u25be");
      this.changed();
    }
  }

  function all(board) {
    const opens = (panel, head, what) => new Shut(panel, head, what, () => board.later());
    return {
      stage: opens(board.stagePanel, board.stageHead, "Texts of all methods"),
      race: opens(board.ledger.root, board.ledger.head, "Forward passes of all methods"),
      insp: opens(board.inspector.root, board.inspector.head, "Round inspector"),
    };
  }

  /* Pictures are what a race of them is about: they stand first, and open. */
  function painting(board, on) {
    if (on === board.root.classList.contains("painting")) return;
    board.root.classList.toggle("painting", on);
    if (on) board.shut.stage.set(true);
  }

  /* In Watch, figures and charts wait behind one key where the page asks for it (option `drawer`). */
  function numbers(board, open) {
    board.root.classList.toggle("numbers", open);
    board.drawerKey.setAttribute("aria-expanded", String(open));
    setText(board.drawerKey, SV.messages.say(open ? "numbers.close" : "numbers.open"));
    board.later();
  }

  /* Whether only the strip, the text and one sentence are to be seen. */
  const calm = (board) => board.root.classList.contains("drawer") && !board.root.classList.contains("numbers");

  SV.folding = { all, painting, numbers, calm };
})();
