/* node --test tests/viewer/fold.test.js, with SPECVIZ_FIXTURE naming the fixture that test_fold.py writes. */
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const test = require("node:test");

const assets = path.join(__dirname, "..", "..", "assets", "viewer");
for (const name of process.env.SPECVIZ_SCRIPTS.split(" ")) require(path.join(assets, name + ".js"));
require("./cases.js");
const fixture = JSON.parse(fs.readFileSync(process.env.SPECVIZ_FIXTURE, "utf8"));
for (const [name, run] of Object.entries(globalThis.SPECVIZ_CASES)) test(name, () => run(globalThis.SpecViz, fixture));
