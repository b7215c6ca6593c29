(() => {
  const touched = ["pointerdown", "keydown", "focusin"];
  let asked = false;
  function fetchPlotly() {
    if (asked) return;
    asked = true;
    touched.forEach((name) => removeEventListener(name, fetchPlotly, true));
    const script = document.createElement("script");
    script.src = (window.gradio_config?.root ?? "") + "/own/plotly.js";
    script.async = true;
    document.head.append(script);
  }
  touched.forEach((name) => addEventListener(name, fetchPlotly, true));
  addEventListener("load", () => setTimeout(() => (window.requestIdleCallback || setTimeout)(fetchPlotly), 5000));
})();
