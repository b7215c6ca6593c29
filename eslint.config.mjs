// The scripts are plain: concatenated in the order of their needs, no modules, no build step.
import js from "@eslint/js";
import globals from "globals";

const ours = { SpecViz: "writable", SpecVizBoard: "readonly", SpecVizPanels: "readonly", Plotly: "readonly" };

export default [
  js.configs.recommended,
  {
    files: ["**/*.js"],
    languageOptions: { ecmaVersion: 2024, sourceType: "script", globals: { ...globals.browser, ...ours } },
    rules: {
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-control-regex": "off", // control characters are found in order to show them by name
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-redeclare": ["error", { builtinGlobals: false }],
      "no-unused-vars": ["error", { args: "none" }],
    },
  },
  {
    // The static site: its content comes as a script, and the element's page is put in when the site is written.
    files: ["specviz/site/static/**/*.js"],
    languageOptions: { globals: { SpecVizSite: "writable", PAGE_OF_A_TRACE: "readonly" } },
  },
  {
    // Joined into one function at run time (specviz/ui/board.py): names of one file are used in another.
    files: ["specviz/ui/static/**/*.js"],
    rules: { "no-undef": "off", "no-unused-vars": "off" },
  },
];
