/* Settings: the commands that open the page on one's own model, or beside one's own server, each with a button that copies it. */
const OWN = [
  [
    "Your folder or GGUF file",
    "SPECVIZ_TARGET=PATH python app.py",
    "The page opens on it; with SPECVIZ_DRAFT=PATH on a draft model, too.",
  ],
  [
    "Your server",
    "SPECVIZ_SERVERS='vllm=http://127.0.0.1:8000' python app.py",
    "It becomes a lane of the page. Also sglang=, trtllm=, llamacpp=, mlxvlm= or openai=.",
  ],
];
const own = element.querySelector(".pg-own");
const part = (tag, name, text) => {
  const node = document.createElement(tag);
  node.className = name;
  node.textContent = text;
  return node;
};
own.append(part("h3", "", "Your own"));
for (const [title, command, about] of OWN) {
  const key = part("button", "pg-copy", "Copy");
  key.type = "button";
  key.setAttribute("aria-label", `Copy the command: ${title}`);
  key.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      key.textContent = "Copied";
    } catch {
      key.textContent = "Select it instead";
    }
  });
  const line = part("div", "pg-command", "");
  line.append(part("code", "", command), key);
  own.append(part("p", "pg-small", title), line, part("p", "pg-small", about));
}
