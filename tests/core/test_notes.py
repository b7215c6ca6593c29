"""Notes are what specviz/core/note_kinds.py declares: where they are written, where they are described,
where they are drawn."""

from __future__ import annotations

import ast
import json
import re

import pytest

from specviz import ASSETS, ROOT
from specviz.core import State
from specviz.core.note_kinds import check, table, with_table
from specviz.methods import note_kinds
from specviz.trace.recorder import without_nonfinite

from ..message_codes import refuses

NOTES = note_kinds()


def written():
    """(file and line, kind, the fields that are named there, whether there may be more) of every
    ``.note("kind", ...)``."""
    for path in sorted((ROOT / "specviz").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "note"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                names = [k.arg for k in node.keywords]
                yield (
                    f"{path.relative_to(ROOT)}:{node.lineno}",
                    node.args[0].value,
                    {*names} - {None},
                    None in names,
                )


@pytest.mark.parametrize(
    "kind, data, says",
    [
        ("matc", {"start": 1}, "note.unknown matc"),
        ("threshold", {"value": 1, "vaule": 2}, "note.field vaule"),
        ("match", {"start": 1, "end": 2, "n": 1}, "note.lacks copied"),
        ("threshold", {}, "note.lacks value"),
    ],
)
def test_a_slip_fails_where_it_is_written(kind, data, says):
    state = State([1])
    with refuses(ValueError, *says.split()):
        state.note(kind, **data)
    assert not state.notes


@pytest.mark.parametrize("kind", NOTES)
def test_what_is_declared_is_taken(kind):
    note, state = NOTES[kind], State([1])
    state.note(kind, **note.example)
    state.note(kind, **{name: note.example[name] for name in note.needed})
    assert json.loads(json.dumps(without_nonfinite(note.example))) == note.example and len(state.notes) == 2
    assert note.about.endswith(".") and all([*note.needed.values(), *note.maybe.values()])
    with pytest.raises(ValueError):
        check(kind, {**note.example, "more": 1})


def test_every_note_in_the_code_is_declared_and_every_declared_one_is_noted():
    found = list(written())
    for where, kind, names, more in found:
        note = NOTES.get(kind)
        assert note, f"{where}: {kind} is not declared"
        assert names <= {*note.needed, *note.maybe} and (more or note.needed.keys() <= names), (
            f"{where}: {kind}"
        )
    assert {kind for _, kind, _, _ in found} == set(NOTES)


def test_the_table_of_the_traces_page_is_this_one():
    text = (ROOT / "docs" / "TRACE.md").read_text(encoding="utf-8")
    assert table() in text and text.count("| kind |") == 1, (
        "make docs (python -m specviz list --write) writes it anew"
    )
    assert with_table(text.replace("`backoff`", "`gone`")) == text


def test_each_kind_is_drawn_by_the_file_it_names():
    """That it draws it, and that no other kind is drawn, is tested in the browser
    (tests/viewer/test_lens.py)."""
    for kind, note in NOTES.items():
        drawn = (ASSETS / "viewer" / "lens" / f"{note.lens}.js").read_text(encoding="utf-8")
        assert re.search(rf"\b{kind}\b", drawn), f"{note.lens}.js does not draw {kind}"
