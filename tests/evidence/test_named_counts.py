"""No page names another count of methods, claims or wrong variants than the catalogue, its own table or its
ledger holds."""

from __future__ import annotations

import re

import pytest

from specviz import ASSETS
from specviz.evidence import claims as ledger
from specviz.methods import catalogue

ROOT = ASSETS.parent
COUNT = re.compile(r"\b(\d{2,4}) (exact methods|methods|claims|wrong variants)\b")
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "assets/*/*.js", "specviz/ui/**/*.js", "specviz/**/*.md")
    for path in ROOT.glob(pattern)
    if "log" not in path.parts and path.name != "CHANGELOG.md"  # they hold what was counted on their day
)


def rows(text: str) -> set[int]:
    """The numbers of rows of a page's tables."""
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    return {table.count("\n") - 2 for table in tables}


def held(text: str, what: str) -> set[int]:
    """The counts that a page may name: the catalogue's, and those of its own tables."""
    known = {
        "methods": {len(catalogue()), len(catalogue()) - 1},
        "exact methods": {sum(method.exactness == "exact" for method in catalogue().values())},
        "claims": {len(ledger.listed())},
        "wrong variants": set(),
    }
    own = rows(text)
    return known[what] | own | {count - 1 for count in own}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_names_the_counts_that_are_held(page):
    text = page.read_text(encoding="utf-8")
    other = [match[0] for match in COUNT.finditer(text) if int(match[1]) not in held(text, match[2])]
    assert not other


def test_another_count_is_found():
    assert COUNT.findall("It has 12 claims and 5000 methods.") == [("12", "claims"), ("5000", "methods")]
    assert 5000 not in held("| a |\n|---|\n| b |\n", "methods")
    assert 1 in held("| a |\n|---|\n| b |\n", "claims")


def figures(text: str) -> set[str]:
    """The factors of speed that a text names."""
    return set(re.findall(r"\b(\d+(?:\.\d+)?) times (?:as fast|faster|plain decoding)", text))


def test_factors_of_speed_in_the_readme_stand_in_a_ledger():
    ledgers = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docs/*.md"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {one for one in figures(readme) if one not in ledgers} == set()
    assert figures("1.5 times as fast") == {"1.5"}
