"""The house's own rules: every module in a room, every room in a layer, files that can be read in one go, plain JavaScript."""
from __future__ import annotations

import graphlib
import re
import statistics
import tomllib

import grimp
from specviz import ASSETS, ROOT

MODULES = sorted((ROOT / "specviz").rglob("*.py"))
SCRIPTS = sorted([*ASSETS.glob("viewer/**/*.js"), *ASSETS.glob("panels/**/*.js"), *(ROOT / "specviz" / "ui" / "static").glob("*.js")])
LONGEST, MEDIAN, WIDEST = 300, 120, 130
RUNS_TEXT = r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function)"


def lengths(files):
    return {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in files}


def test_every_module_stands_in_a_room_and_every_room_in_a_layer():
    loose = {file.name for file in (ROOT / "specviz").glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(c for c in contracts if c["name"] == "Layers")
    rooms = {folder.name for folder in (ROOT / "specviz").iterdir() if (folder / "__init__.py").is_file()}
    assert layers["exhaustive"] and rooms | {"__main__"} == {name for row in layers["layers"] for name in row.replace("|", " ").split()}


def test_no_file_imports_itself_through_others():
    graph = grimp.build_graph("specviz", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) >= len(MODULES)
    graphlib.TopologicalSorter(imports).prepare()  # CycleError names the files of a circle


def test_tests_mirror_the_rooms():
    rooms = {folder.name for folder in (ROOT / "specviz").iterdir() if (folder / "__init__.py").is_file()}
    tested = {folder.name for folder in (ROOT / "tests").iterdir() if (folder / "__init__.py").is_file()}
    assert rooms <= tested and tested - rooms <= {"attack", "exactness", "panels", "viewer"}


def test_no_module_is_long_and_half_of_them_are_short():
    found = lengths(MODULES)
    assert not {name: lines for name, lines in found.items() if lines > LONGEST}
    assert statistics.median(found.values()) <= MEDIAN


def test_javascript_is_short_narrow_and_never_runs_text():
    assert len(SCRIPTS) > 50
    assert not {name: lines for name, lines in lengths(SCRIPTS).items() if lines > LONGEST}
    for file in SCRIPTS:
        text = file.read_text(encoding="utf-8")
        wide = [n for n, line in enumerate(text.splitlines(), 1) if len(line) > WIDEST]
        assert not wide, f"{file.name}: lines {wide} are wider than {WIDEST} columns"
        assert not re.search(RUNS_TEXT, re.sub(r"/\*.*?\*/", "", text, flags=re.S)), file.name
