"""The cards: the catalogue without torch, true to it, and never in the way of a new method."""
from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from specviz import ROOT, catalogue
from specviz.methods import families as all_families
from specviz.methods import lookup
from specviz.run.session import find_method
from specviz.ui import cards as module
from specviz.ui.cards import FILE, METHODS, Card, cards, families, write

NEW = """from ...core import Method
from ..draft_model.speculative import build

METHOD = Method(key="trial", title="Trial", paper="", summary="As it stands.", build=build, needs=frozenset({"draft"}))
"""


@pytest.fixture
def copied(tmp_path):
    """The catalogue's files somewhere else."""
    return shutil.copytree(METHODS, tmp_path / "methods", ignore=shutil.ignore_patterns("__pycache__"))


def test_the_file_is_what_the_catalogue_says(copied):
    assert write(copied).read_text() == (METHODS / FILE).read_text(), "a method has changed: make cards (python -m specviz list --write)"


def test_the_file_is_read_and_says_all_of_the_catalogue(monkeypatch):
    read = {key: vars(card) for key, card in cards().items()}
    monkeypatch.setattr(module, "_lines", lambda folder: None)
    assert read == {key: vars(card) for key, card in cards().items()} and list(read) == list(catalogue())
    for key, method in catalogue().items():
        for name in set(Card.__dataclass_fields__) - {"knobs"}:
            assert read[key][name] == getattr(method, name), (key, name)
        assert [vars(knob) for knob in read[key]["knobs"]] == [vars(knob) for knob in method.knobs], key


def test_every_family_has_its_sentence(monkeypatch):
    read = families()
    assert read == {title: family.about for title, family in all_families().items()}
    assert set(read) == {card.family for card in cards().values()} and all(about.endswith(".") for about in read.values())
    monkeypatch.setattr(module, "_lines", lambda folder: None)
    assert families() == read


def test_no_card_needs_torch():
    script = ("import sys; from specviz.ui.cards import cards; "
              "print(len(cards()), sorted({'torch', 'safetensors', 'gradio'} & set(sys.modules)))")
    said = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    assert said == f"{len(catalogue())} []\n"


@pytest.mark.parametrize("change", ["new", "changed", "gone", "unwritten", "garbage"])
def test_a_file_that_does_not_fit_is_not_believed(copied, change):
    assert module._lines(copied) is not None
    file = copied / "lookup" / "rest.py"
    if change == "new":
        (copied / "lookup" / "trial.py").write_text(NEW)
    elif change == "changed":
        file.write_text(file.read_text().replace("REST", "Rest"))
    elif change == "gone":
        file.unlink()
    elif change == "unwritten":
        (copied / FILE).unlink()
    else:
        (copied / FILE).write_text('{"lookup/rest.py": 1}')
    assert module._lines(copied) is None and list(cards(copied)) == list(catalogue())


def test_a_new_method_costs_one_file(copied, monkeypatch):
    """It stands in the catalogue, on the page and on the command line without being named anywhere."""
    (copied / "lookup" / "trial.py").write_text(NEW)
    monkeypatch.setattr(lookup, "__path__", [str(copied / "lookup")])
    catalogue.cache_clear()
    try:
        assert catalogue()["trial"].family == catalogue()["rest"].family
        assert cards(copied)["trial"].needs == {"draft"} and "trial" not in cards()
        assert find_method("trial").title == "Trial"
        assert "lookup/trial.py" in write(copied).read_text() and list(cards(copied)) == list(catalogue())
    finally:
        catalogue.cache_clear()
        sys.modules.pop("specviz.methods.lookup.trial")
