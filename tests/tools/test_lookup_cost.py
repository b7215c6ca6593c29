"""The measurement of lookups: it runs every structure, writes what it found, and its scan finds what the
product's tables find."""

from __future__ import annotations

from xml.etree import ElementTree

from specviz.core import Budget, State
from specviz.drafters.lookup.prompt_lookup import PromptLookup
from tools.lookup_cost import STRUCTURES, ScanLookup, main, synthetic_tokens


def test_every_structure_is_measured(tmp_path, capsys):
    assert main(["--most", "1000", "--rounds", "3", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "lookup_cost.md").read_text()
    names = [name for name in STRUCTURES if not name.endswith("HNSW")]
    assert all(f"| {name} | " in text for name in names) and text in capsys.readouterr().out
    picture = ElementTree.parse(tmp_path / "lookup_cost.svg").getroot()
    assert len([e for e in picture if e.tag.endswith("polyline")]) >= len(names)
    assert main(["--most", "10"]) == 1 and "1,000" in capsys.readouterr().err


def test_scan_and_tables_draft_the_same():
    text = synthetic_tokens(400, seed=3)
    scan, tables = ScanLookup(3), PromptLookup(3)
    found = 0
    for end in range(40, 400):
        state = State(text[:end])
        drafts = [one.propose(state, Budget(10)).tokens for one in (scan, tables)]
        assert drafts[0] == drafts[1]
        found += bool(drafts[0])
    assert found > 100
