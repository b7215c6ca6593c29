/* Copies that cost nothing. While a run streams, Gradio's client copies what every component on the page holds, value by
   value, with structuredClone: thousands of texts, numbers and nothings a second, among them whole scripts. A text, a number,
   true, false, null and undefined are their own copies, and a function has none: that is answered here, with an error made once,
   because the client only drops it. Everything else goes to the browser's own function, and so does a call with options. */
(() => {
  const own = /** @type {typeof structuredClone & {plain?: Function}} */ (globalThis.structuredClone);
  if (!own || own.plain) return;
  const kinds = new Set(["string", "number", "boolean", "undefined", "bigint"]),
    none = new DOMException("A function could not be cloned.", "DataCloneError");
  function structuredClone(value) {
    if (arguments.length === 1) {
      if (value === null || kinds.has(typeof value)) return value;
      if (typeof value === "function") throw none;
    }
    return own.call(globalThis, ...arguments);
  }
  structuredClone.plain = own;
  globalThis.structuredClone = structuredClone;
})();
