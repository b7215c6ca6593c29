/* Settings: what machine answers, which forward runs, and what a pass costs. Measured when asked: the report of `specviz
   doctor`. */
const DOCTOR = {
  title: "This machine",
  start: "Measure for two seconds",
  working: "Measuring.",
  cached: "kept on disk",
  compiles: "not kept: the next start compiles them",
  passes: "A pass of N tokens takes",
};
const doctor = element.querySelector(".pg-own");
const doctorLine = (tag, name, text) => {
  const node = document.createElement(tag);
  node.className = name;
  node.textContent = text;
  return node;
};
/* [name, value] of each line of the report */
const doctorRows = ({ machine, memory, gpu, kernels, libraries, target, missing }) => [
  ["processor", `${machine.processor}, ${machine.cores} cores`],
  ["instructions", machine.instructions.join(" ") || "-"],
  ["memory", `${memory.total_gb ?? "-"} GB, ${memory.available_gb ?? "-"} GB available`],
  ...(gpu.length
    ? gpu.map((one) => ["gpu", `${one.name}, ${one.memory_gb} GB, driver ${one.driver ?? "-"}`])
    : [["gpu", "none"]]),
  ["compiled kernels", kernels?.cached ? DOCTOR.cached : DOCTOR.compiles],
  ["libraries", `torch ${libraries.torch}, transformers ${libraries.transformers}, specviz ${libraries.specviz}`],
  ["target", `${target.name}; draft ${target.draft ?? "none"}`],
  ["forward", `${target.backend} (${target.forward}), ${target.numbers}, on ${target.device}`],
  [DOCTOR.passes, (target.passes ?? []).map((row) => `${row.tokens}: ${row.ms} ms (${row.relative}x)`).join(", ")],
  ...(target.draft_pass_ms ? [["draft pass", `${target.draft_pass_ms} ms`]] : []),
  ...missing.map((one) => [`not installed: ${one.name}`, `${one.needed_for}. ${one.get}`]),
];
const doctorKey = doctorLine("button", "pg-copy", DOCTOR.start);
doctorKey.type = "button";
const doctorList = doctorLine("dl", "pg-report", "");
const doctorState = doctorLine("p", "pg-small", "");
doctorState.setAttribute("role", "status");
doctorKey.addEventListener("click", async () => {
  doctorKey.disabled = true;
  doctorState.textContent = DOCTOR.working;
  try {
    const page = window.SpecVizPage;
    const target = page.titles?.[document.querySelector("#target input")?.value] ?? "";
    const found = await page.ask("doctor", { target }, (message) => {
      if (typeof message.text === "string") doctorState.textContent = message.text;
    });
    doctorState.textContent = "";
    doctorList.replaceChildren(
      ...doctorRows(found).flatMap(([name, value]) => [doctorLine("dt", "", name), doctorLine("dd", "", value)]),
    );
  } catch (error) {
    doctorState.textContent = error.message;
  } finally {
    doctorKey.disabled = false;
  }
});
doctor.append(doctorLine("h3", "", DOCTOR.title), doctorKey, doctorState, doctorList);
