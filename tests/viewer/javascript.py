"""Cases in JavaScript that need no page: `node --test` where there is a node, else a bare page of the
tests' browser.

A file of cases adds to `SPECVIZ_CASES` (name -> function of SpecViz and the fixture, which throws when it
does not hold).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
NODE = shutil.which("node")
RUN = """(text) => { const fx = JSON.parse(text), wrong = [];
  for (const [name, run] of Object.entries(SPECVIZ_CASES)) { try { run(SpecViz, fx); } catch (e) { wrong.push(name + ": " + e.message); } }
  return [Object.keys(SPECVIZ_CASES).length, wrong]; }"""


def in_node(files: list[Path], fixture: dict, tmp_path: Path) -> None:
    """Load the files in this order, then run every case; each is a test of its own in node's report."""
    data = tmp_path / "fixture.json"
    data.write_text(json.dumps(fixture), encoding="utf-8")
    env = {**os.environ, "SPECVIZ_FIXTURE": str(data), "SPECVIZ_FILES": json.dumps([str(f) for f in files])}
    done = subprocess.run(
        [NODE, "--test", str(HERE / "pure.test.cjs")], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "# skipped 0" in done.stdout and "# pass 0" not in done.stdout


def in_page(files: list[Path], fixture: dict, drive) -> None:
    """The same in a page; `drive(use)` calls `use(page)`."""

    def use(page):
        for file in files:
            page.add_script_tag(content=file.read_text(encoding="utf-8"))
        return page.evaluate(RUN, json.dumps(fixture))

    count, wrong = drive(use)
    assert count > 0 and not wrong, "\n".join(wrong)
