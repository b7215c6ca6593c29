"""What the pages for readers quote is what the code says."""

from __future__ import annotations

import ast
import json
import re
import shlex

import pytest

from specviz import ASSETS, ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FACTS = [page for page in PAGES if "log" not in page.relative_to(ROOT).parts]
PAGE = ROOT / "docs" / "ARCHITECTURE.md"


def source(name: str) -> str:
    text = (ROOT / "specviz" / "core" / "round.py").read_text(encoding="utf-8")
    return next(
        ast.get_source_segment(text, node)
        for node in ast.parse(text).body
        if getattr(node, "name", "") == name
    )


def test_the_quoted_round_is_the_code():
    quoted = (
        PAGE.read_text(encoding="utf-8")
        .split("<!-- round -->\n```python\n")[1]
        .split("```\n<!-- /round -->")[0]
    )
    assert (
        quoted.strip() == "\n\n\n".join(source(name) for name in ("play", "propose", "conclude"))
        and len(quoted.splitlines()) <= 70
    )


def test_the_picture_names_every_package():
    text = PAGE.read_text(encoding="utf-8")
    rooms = {folder.name for folder in (ROOT / "specviz").iterdir() if (folder / "__init__.py").is_file()}
    picture = text.split("```")[1]
    assert not {room for room in rooms if not re.search(rf"\b{room}\b", picture)}


def test_every_link_between_the_pages_leads_somewhere():
    cards = sorted((ROOT / "assets" / "models").rglob("README.md"))
    assert len(PAGES) > 20 and len(cards) > 55
    for page in [*PAGES, *cards]:
        for link in re.findall(
            r"(?:\]\(|^license_link: )(?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"), re.M
        ):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}"


def test_every_entry_of_the_log_says_what_was_asked_done_found_and_what_follows_and_stands_in_its_list():
    folder, listed = ROOT / "docs" / "log", {}
    for part in (folder / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        listed[re.search(r"\((\d{4}-\d\d/\w+\.md)\)", part)[1]] = re.findall(r"^- (.*)", part, re.M)
    assert set(listed) == {page.relative_to(folder).as_posix() for page in folder.rglob("*.md")} - {
        "README.md"
    }
    for name, entries in listed.items():
        found = (folder / name).read_text(encoding="utf-8").split("\n## ")[1:]
        assert entries == [entry.partition("\n")[0] for entry in found], name
        assert all(entry.startswith(name[:7]) for entry in entries), name
        for entry in found:
            parts = re.findall(r"^\*\*(Asked|Done|Figure|Follows)\*\*", entry, re.M)
            assert parts == ["Asked", "Done", "Figure", "Follows"], f"{name}: {entry.partition(chr(10))[0]}"


@pytest.mark.parametrize("page", FACTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_a_page_names_is_there(page):
    for path in re.findall(
        r"`((?:specviz|assets|tests|tools|docs|notebooks)/[\w./-]*)", page.read_text(encoding="utf-8")
    ):
        if not re.search(r"[A-Z]{2}|NAME", path):
            assert (ROOT / path).exists(), path


def test_every_command_a_page_names_is_one_with_these_options():
    from specviz.cli.commands import parser

    commands = next(
        action for action in parser()._actions if hasattr(action, "choices") and action.choices
    ).choices
    found = 0
    for page in FACTS:
        text = page.read_text(encoding="utf-8")
        for line in re.findall(
            r"(?:^ {4,}|^|`)(?:\w+=\S+ )*(?:python -m )?specviz ([a-z][^`\n]*)", text, re.M
        ):
            words = shlex.split(
                line.split(" #")[0].split(" | ")[0].split("  ")[0].replace("'", "").replace('"', "")
            )
            if words and words[0] in commands:
                found += 1
                known = commands[words[0]]._option_string_actions
                assert not [word for word in words if word.startswith("--") and word not in known], (
                    f"{page.name}: specviz {line}"
                )
            else:
                assert not words or not line.startswith(("run", "bench", "verify", "serve", "load")), (
                    f"{page.name}: specviz {line}"
                )
    assert found > 40


def test_the_page_of_environment_variables_lists_those_that_the_code_reads():
    page = (ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    files = [
        ROOT / "app.py",
        ROOT / "setup.py",
        ROOT / "Makefile",
        *ROOT.glob("Dockerfile*"),
        *(
            file
            for folder in ("specviz", "tests", "tools")
            for kind in ("*.py", "*.cjs")
            for file in (ROOT / folder).rglob(kind)
        ),
    ]
    read = {
        name
        for file in files
        for name in re.findall(
            r"""(?:["' ]|env\.)(SPECVIZ_[A-Z_]+)(?=["'=)])""", file.read_text(encoding="utf-8")
        )
    }
    assert set(re.findall(r"`(SPECVIZ_[A-Z_]+)`", page)) == read


def test_each_requirement_stands_in_one_file():
    files = {
        file: re.findall(r"^[\w-]+", file.read_text(encoding="utf-8"), re.M)
        for file in sorted(ROOT.glob("requirements*.txt"))
    }
    names = [name.lower() for listed in files.values() for name in listed]
    assert len(files) == 7 and len(names) == len(set(names)), sorted(
        name for name in names if names.count(name) > 1
    )


def test_generated_pages_are_what_their_commands_print():
    from tools import command_line as reference
    from tools import error_list, glossary, large_files

    docs = ROOT / "docs"
    assert (docs / "glossary.md").read_text(encoding="utf-8") == glossary.page(), "make docs"
    assert (docs / "reference" / "command-line.md").read_text(encoding="utf-8") == reference.page(), (
        "make docs"
    )
    assert (docs / "reference" / "errors.md").read_text(encoding="utf-8") == error_list.page(), "make docs"
    assert (docs / "reference" / "large-files.md").read_text(encoding="utf-8") == large_files.page(), (
        "make docs"
    )


def test_the_glossary_defines_each_term_once_and_the_numbers_are_those_of_the_metrics():
    words = json.loads((ASSETS / "glossary.json").read_text(encoding="utf-8"))
    terms = [term["term"] for term in words["terms"]]
    assert len(terms) == len(set(terms)) and all(term["meaning"].endswith(".") for term in words["terms"])
    source = (ROOT / "specviz" / "trace" / "metrics.py").read_text(encoding="utf-8")
    for row in words["numbers"]:
        assert row["definition"] and row["others"]
    assert {
        "block_efficiency",
        "mean_accepted_tokens",
        "acceptance_rate",
        "draft_yield",
        "tokens_per_second",
        "walltime_speedup",
    } <= {row["key"] for row in words["numbers"] if row["key"] in source}


def test_how_to_pages_fit_on_one_screen():
    pages = sorted((ROOT / "docs" / "howto").glob("*.md"))
    assert len(pages) >= 7 and all(len(page.read_text(encoding="utf-8").splitlines()) <= 45 for page in pages)
