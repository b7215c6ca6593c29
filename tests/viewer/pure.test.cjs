/* node --test tests/viewer/pure.test.cjs: SPECVIZ_FILES names the scripts and the cases in their order, SPECVIZ_FIXTURE the
   data of the cases. See javascript.py. */
"use strict";
const fs = require("node:fs");
const test = require("node:test");
const vm = require("node:vm");

for (const file of JSON.parse(process.env.SPECVIZ_FILES))
  vm.runInThisContext(fs.readFileSync(file, "utf8"), { filename: file });
const fixture = JSON.parse(fs.readFileSync(process.env.SPECVIZ_FIXTURE, "utf8"));
for (const [name, run] of Object.entries(globalThis.SPECVIZ_CASES)) test(name, () => run(globalThis.SpecViz, fixture));
