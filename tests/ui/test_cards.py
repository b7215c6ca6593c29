"""The cards: the catalogue as plain data, without torch, and a new method costs one file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specviz import ROOT, catalogue
from specviz.engine.cards import FIELDS, card_data, cards, families
from specviz.methods import families as all_families
from specviz.methods import lookup, trained_parts
from specviz.run.session import find_method

METHOD = """from ...core import Method

METHOD = Method(key="trial", title="Trial", paper="", summary="As it stands.", build=lambda kit: None, needs=frozenset({"draft"}))
"""


def test_a_card_says_all_of_its_method():
    assert list(cards()) == list(catalogue())
    for key, method in catalogue().items():
        data = card_data(cards()[key])
        assert {name: data[name] for name in FIELDS} == {name: getattr(method, name) for name in FIELDS}
        assert data["needs"] == sorted(method.needs) and [knob["name"] for knob in data["knobs"]] == [
            knob.name for knob in method.knobs
        ]


def test_every_family_has_its_sentence():
    assert families() == {title: family.about for title, family in all_families().items()}
    assert set(families()) == {card.family for card in cards().values()} and all(
        about.endswith(".") for about in families().values()
    )


def test_the_catalogue_imports_nothing_heavy():
    script = (
        "import sys; from specviz.engine.cards import cards; from specviz.methods import trained_parts, note_kinds; trained_parts(); note_kinds();"
        "print(len(cards()), sorted({'torch', 'safetensors', 'gradio', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    ).stdout
    assert printed == f"{len(catalogue())} []\n"


@pytest.mark.parametrize("layout", ["trial.py", "trial/__init__.py"])
def test_a_new_method_costs_one_module_or_package(tmp_path, monkeypatch, layout):
    """It stands in the catalogue, on the page and on the command line without being named anywhere."""
    copy = shutil.copytree(
        Path(lookup.__path__[0]), tmp_path / "lookup", ignore=shutil.ignore_patterns("__pycache__")
    )
    (copy / layout).parent.mkdir(exist_ok=True)
    (copy / layout).write_text(METHOD if layout == "trial.py" else METHOD.replace("...core", "....core"))
    catalogue.cache_clear()
    try:
        monkeypatch.setattr(lookup, "__path__", [str(copy)])
        assert catalogue()["trial"].family == catalogue()["rest"].family
        assert cards()["trial"].needs == {"draft"} and find_method("trial").title == "Trial"
    finally:
        monkeypatch.undo()
        catalogue.cache_clear()
        trained_parts.cache_clear()
        sys.modules.pop("specviz.methods.lookup.trial")
        vars(lookup).pop("trial", None)
    assert "trial" not in cards()
