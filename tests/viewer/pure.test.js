/* node --test tests/viewer/pure.test.js: SPECVIZ_FILES names the scripts and the cases in their order, SPECVIZ_FIXTURE the
   data of the cases. See javascript.py. */
"use strict";
const fs = require("node:fs");
const test = require("node:test");

for (const file of JSON.parse(process.env.SPECVIZ_FILES)) require(file);
const fixture = JSON.parse(fs.readFileSync(process.env.SPECVIZ_FIXTURE, "utf8"));
for (const [name, run] of Object.entries(globalThis.SPECVIZ_CASES)) test(name, () => run(globalThis.SpecViz, fixture));
