"""What the panels work out without a page: words, the sums of the Lab, what the lessons look for."""

from __future__ import annotations

from pathlib import Path

import pytest

from specviz.trace.page import VIEWER, scripts
from specviz.ui.board import panel_files
from specviz.ui.theme import PANELS

from ..viewer import sample
from ..viewer.javascript import HERE as TOOLS
from ..viewer.javascript import NODE, in_node, in_page
from .runs import every_kind

CASES = [TOOLS / "tools.js", *(Path(__file__).parent / name for name in ("cases.js", "cases_sentences.js"))]
SCRIPTS = [*(VIEWER / f"{name}.js" for name in scripts()), *(PANELS / f"{name}.js" for name in panel_files())]


def fixture() -> dict:
    return {"race": sample.race(), "runs": every_kind()}


def test_the_pure_parts_by_themselves(tmp_path: Path, request) -> None:
    if NODE:
        in_node(SCRIPTS + CASES, fixture(), tmp_path)
    else:
        test_the_same_cases_in_chromium(request.getfixturevalue("visit"))


@pytest.mark.thorough
def test_the_same_cases_in_chromium(visit) -> None:
    in_page(CASES, fixture(), visit)
