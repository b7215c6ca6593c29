"""A user's script under pyright's strict rules sees the package's types."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import specviz

SCRIPT = Path(__file__).with_name("typed_script.py")
WRONG = """
import specviz
from specviz import GenerationRequest, Sampling, Session, load

Sampling(seeed=1)  # reportCallIssue
load(target=3)  # reportArgumentType
Session(load(), key="speculative")  # reportCallIssue
GenerationRequest(max_tokens="many")  # reportArgumentType
print(specviz.nonsense)  # reportAttributeAccessIssue
text: int = Session(load(), "speculative").run  # reportAssignmentType
"""


def check(folder: Path, text: str) -> list[tuple[int, str]]:
    """The errors of pyright, strict, as (line, rule)."""
    (folder / "script.py").write_text(text, encoding="utf-8")
    home = Path(sys.prefix).resolve()
    config = {
        "strict": ["."],
        "extraPaths": [str(specviz.ROOT)],
        "venvPath": str(home.parent),
        "venv": home.name,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    argv = [sys.executable, "-m", "pyright", "-p", str(folder), "--outputjson"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    try:
        found = json.loads(done.stdout)["generalDiagnostics"]
    except ValueError:
        pytest.skip("pyright does not run here")
    errors = [one for one in found if one["severity"] == "error"]
    return [(one["range"]["start"]["line"] + 1, one.get("rule", one["message"])) for one in errors]


@pytest.mark.thorough
def test_a_users_script_passes(tmp_path):
    assert check(tmp_path, SCRIPT.read_text(encoding="utf-8")) == []


def test_mistakes_are_found(tmp_path):
    want = [
        (number, match[1])
        for number, line in enumerate(WRONG.splitlines(), 1)
        if (match := re.search("# (report.*)", line))
    ]
    found = check(tmp_path, WRONG)
    assert set(want) <= set(found) and {line for line, _ in found} == {line for line, _ in want}, found


def test_every_exported_name_is_there_and_documented():
    page = (specviz.ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    table = set(re.findall(r"`(\w+)", "".join(line for line in page.splitlines() if line.startswith("|"))))
    for name in specviz.__all__:
        assert getattr(specviz, name) is not None
        assert name in table, name
    assert specviz.__version__ == specviz.VERSION
