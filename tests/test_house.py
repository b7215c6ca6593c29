"""The house's own rules: every module in a room, every room in a layer, files that can be read in one go,
plain JavaScript."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
import types
import warnings

import grimp
import pytest

from specviz import ASSETS, ROOT
from tools.error_list import raise_sites

MODULES = sorted([*(ROOT / "specviz").rglob("*.py"), *(ROOT / "tools").rglob("*.py")])
SCRIPTS = sorted(
    [
        *ASSETS.glob("viewer/**/*.js"),
        *ASSETS.glob("panels/**/*.js"),
        *(ROOT / "specviz" / "ui" / "static").glob("*.js"),
    ]
)
WIDEST = 130  # columns of a script: prettier formats code at 120, strings and comments may be longer
LINES, COMPLEXITY = 100, 12  # of a function, as the formatter writes it
LONGEST_SCRIPT = 400  # lines, formatted by prettier
# Words of ours that the field does not use. What is left has a reason: the trace's check of kind "told" is
# part of its format.
PRIVATE = (
    "law",
    "laws",
    "heat",
    "dice",
    "told",
    "kin",
    "dear",
    "lawful",
    "likeliest",
    "foresee",
    "foreseen",
    "company",
)
MOST_PRIVATE = 5
# Calls whose value is another one in every process.
UNREPEATABLE = (
    "urandom",
    "time",
    "time_ns",
    "monotonic",
    "perf_counter",
    "now",
    "today",
    "uuid1",
    "uuid4",
    "token_hex",
    "token_bytes",
    "getpid",
    "mkdtemp",
    "mkstemp",
    "randint",
    "id",
    "hash",
)
RUNS_TEXT = r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function)"


def lengths(files):
    return {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in files}


def test_every_module_stands_in_a_room_and_every_room_in_a_layer():
    loose = {file.name for file in (ROOT / "specviz").glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(c for c in contracts if c["name"] == "Layers")
    rooms = {folder.name for folder in (ROOT / "specviz").iterdir() if (folder / "__init__.py").is_file()}
    assert layers["exhaustive"] and rooms | {"__main__"} == {
        name for row in layers["layers"] for name in row.replace("|", " ").split()
    }


def test_no_file_imports_itself_through_others():
    graph = grimp.build_graph("specviz", cache_dir=None)
    # A package names its lazy exports once more for type checkers, and those modules import the package.
    run = grimp.build_graph("specviz", cache_dir=None, exclude_type_checking_imports=True)
    packages = {
        module for module in graph.modules if (ROOT.joinpath(*module.split(".")) / "__init__.py").is_file()
    }
    imports = {
        module: (run if module in packages else graph).find_modules_directly_imported_by(module)
        for module in graph.modules
    }
    assert len(imports) >= len(MODULES) - len(list((ROOT / "tools").rglob("*.py")))
    graphlib.TopologicalSorter(imports).prepare()  # CycleError names the files of a circle


def test_only_the_training_imports_a_recipe():
    """Optimisers and training data stay out of whatever answers a request."""
    graph = grimp.build_graph("specviz", cache_dir=None)
    recipes = {module for module in graph.modules if module.endswith("_recipe")}
    train = recipes | {module for module in graph.modules if module.startswith("specviz.training")}
    assert len(recipes) > 30 and all(module.startswith("specviz.methods.") for module in recipes)
    taken = {(a, b) for b in train for a in graph.find_modules_that_directly_import(b) if a not in train}
    assert not taken


def test_tests_mirror_the_rooms():
    rooms = {folder.name for folder in (ROOT / "specviz").iterdir() if (folder / "__init__.py").is_file()}
    tested = {folder.name for folder in (ROOT / "tests").iterdir() if (folder / "__init__.py").is_file()}
    assert rooms <= tested and tested - rooms <= {"attack", "exactness", "panels", "tools", "viewer"}


def changes_from_process_to_process(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "compress":
        return ast.unparse(call.func) == "gzip.compress" and all(
            word.arg != "mtime" for word in call.keywords
        )
    return name in UNREPEATABLE or name in ("Random", "default_rng") and not call.args


def test_the_cases_of_a_test_have_the_same_names_in_every_process():
    """Workers refuse to run tests whose names differ, and a gzip header holds the second in which it was
    written."""
    assert changes_from_process_to_process(ast.parse("gzip.compress(b'a')", mode="eval").body)
    assert not changes_from_process_to_process(ast.parse("gzip.compress(b'a', mtime=0)", mode="eval").body)
    found, marks = [], 0
    for file in sorted((ROOT / "tests").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        parametrized = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize")
        ]
        at_import = [
            node for node in tree.body if isinstance(node, ast.Assign)
        ]  # constants, which marks name
        marks += len(parametrized)
        for node in [*parametrized, *at_import]:
            calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
            found += [
                f"{file.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)[:60]}"
                for call in calls
                if changes_from_process_to_process(call)
            ]
            if node in parametrized:
                found += [
                    f"{file.relative_to(ROOT)}:{argument.lineno}: a set has no order"
                    for argument in node.args[1:]
                    if isinstance(argument, (ast.Set, ast.SetComp))
                ]
    assert marks > 300 and not found, "\n".join(found)


def test_no_function_is_long_or_complex():
    long = {}
    for file in MODULES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                and node.end_lineno - node.lineno >= LINES
            ):
                long[f"{file.relative_to(ROOT)}: {node.name}"] = node.end_lineno - node.lineno + 1
    assert not long
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--no-cache",
            "--isolated",
            "--select",
            "C901",
            "--output-format",
            "concise",
            "--config",
            f"lint.mccabe.max-complexity={COMPLEXITY}",
            str(ROOT / "specviz"),
        ],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout


def test_the_page_is_built_without_torch():
    probe = "import sys, app; print(sorted({'torch', 'transformers', 'safetensors'} & set(sys.modules)))"
    built = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=ROOT)
    assert built.stdout == "[]\n", built.stdout + built.stderr


def test_every_error_of_the_engine_has_an_identifier():
    found = raise_sites()
    assert len(found) > 400 and len({site.error for site in found}) > 10
    assert not [
        site
        for site in found
        if site.code is not None and not re.fullmatch(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*", site.code)
    ]


def test_constants_stand_one_a_line():
    several = []
    for file in MODULES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            targets = [
                name
                for target in getattr(node, "targets", ())
                for name in (target.elts if isinstance(target, ast.Tuple) else [target])
            ]
            names = [name.id for name in targets if isinstance(name, ast.Name)]
            if (
                isinstance(node, ast.Assign)
                and len(names) > 1
                and any(re.fullmatch(r"_?[A-Z][A-Z0-9_]+", name) for name in names)
            ):
                several.append(f"{file.relative_to(ROOT)}:{node.lineno}: {', '.join(names)}")
    assert not several, "\n".join(several)


def test_the_words_are_the_field_s():
    folders = [ROOT / "specviz", ASSETS / "viewer", ASSETS / "panels", ROOT / "docs"]
    files = [
        file
        for folder in folders
        for ending in ("py", "js", "css", "yaml", "md", "html")
        for file in folder.rglob(f"*.{ending}")
        if "log" not in file.relative_to(folder).parts
    ]
    assert len(files) > 300
    word = re.compile(rf"\b({'|'.join(PRIVATE)})\b", re.I)
    found = [
        f"{file.relative_to(ROOT)}:{number}: {match[0]}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        for match in word.finditer(line)
    ]
    assert len(found) <= MOST_PRIVATE, "\n".join(found)


def test_javascript_is_short_narrow_and_never_runs_text():
    assert len(SCRIPTS) > 50
    assert not {name: lines for name, lines in lengths(SCRIPTS).items() if lines > LONGEST_SCRIPT}
    for file in SCRIPTS:
        text = file.read_text(encoding="utf-8")
        wide = [n for n, line in enumerate(text.splitlines(), 1) if len(line) > WIDEST]
        assert not wide, f"{file.name}: lines {wide} are wider than {WIDEST} columns"
        assert "@ts-nocheck" not in text and "@ts-ignore" not in text, (
            file.name
        )  # tsc (tsconfig.json) checks every script
        assert not re.search(RUNS_TEXT, re.sub(r"/\*.*?\*/", "", text, flags=re.S)), file.name


def called_by(name: str, library: types.ModuleType):
    """A function in a module of this name that calls the library's ``old``."""
    module = types.ModuleType(name)
    exec("def call(library):\n    return library.old()\n", module.__dict__)
    return lambda: module.call(library)


def test_own_calls_of_what_libraries_will_remove_fail():
    library = types.ModuleType("some_library")
    exec(
        "import warnings\ndef old():\n    warnings.warn(TEXT, DeprecationWarning, stacklevel=2)",
        vars(library),
    )
    for name, text, fails in (
        ("specviz.zoo.codec", "old is deprecated", True),
        ("specviz.models.llama", "old is deprecated", True),
        ("other_library.part", "old is deprecated", False),
    ):
        library.TEXT = text
        with pytest.raises(DeprecationWarning) if fails else warnings.catch_warnings(action="ignore"):
            called_by(name, library)()
