"""What the panels work out without a page: words, the sums of the Lab, what the lessons look for."""

from __future__ import annotations

from pathlib import Path

from specviz.trace.page import VIEWER, scripts
from specviz.ui.board import panel_files
from specviz.ui.theme import PANELS

from ..viewer import sample
from ..viewer.javascript import HERE as TOOLS
from ..viewer.javascript import NODE, in_node, in_page

CASES = [TOOLS / "tools.js", Path(__file__).parent / "cases.js"]
SCRIPTS = [*(VIEWER / f"{name}.js" for name in scripts()), *(PANELS / f"{name}.js" for name in panel_files())]


def test_the_pure_parts_by_themselves(tmp_path: Path, request) -> None:
    if NODE:
        in_node(SCRIPTS + CASES, {"race": sample.race()}, tmp_path)
    else:
        test_the_same_cases_in_chromium(request.getfixturevalue("visit"))


def test_the_same_cases_in_chromium(visit) -> None:
    in_page(CASES, {"race": sample.race()}, visit)
