"""What the pages for readers quote is what the code says."""
from __future__ import annotations

import ast
import re

from specviz import ROOT

PAGE = ROOT / "docs" / "ARCHITECTURE.md"


def source(name: str) -> str:
    text = (ROOT / "specviz" / "core" / "round.py").read_text(encoding="utf-8")
    return next(ast.get_source_segment(text, node) for node in ast.parse(text).body if getattr(node, "name", "") == name)


def test_the_quoted_round_is_the_code():
    quoted = PAGE.read_text(encoding="utf-8").split("<!-- round -->\n```python\n")[1].split("```\n<!-- /round -->")[0]
    assert quoted.strip() == "\n\n".join(source(name) for name in ("play", "propose", "conclude")) and len(quoted.splitlines()) <= 44


def test_every_room_and_every_path_it_names_is_there():
    text = PAGE.read_text(encoding="utf-8")
    rooms = {folder.name for folder in (ROOT / "specviz").iterdir() if (folder / "__init__.py").is_file()}
    picture = text.split("```")[1]
    assert not {room for room in rooms if not re.search(rf"\b{room}\b", picture)}
    for path in re.findall(r"`((?:specviz|assets|tests|docs)/[\w./]*)", text):
        if not re.search(r"[A-Z]{2}", path):
            assert (ROOT / path).exists(), path


def test_every_link_between_the_pages_leads_somewhere():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert len(pages) > 5
    for page in pages:
        for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_entry_of_the_log_says_what_was_asked_done_found_and_what_follows_and_stands_in_its_list():
    folder, listed = ROOT / "docs" / "log", {}
    for part in (folder / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        listed[re.search(r"\((\w+\.md)\)", part)[1]] = re.findall(r"^- (.*)", part, re.M)
    assert set(listed) == {page.name for page in folder.glob("*.md")} - {"README.md"}
    for name, entries in listed.items():
        found = (folder / name).read_text(encoding="utf-8").split("\n## ")[1:]
        assert entries == [entry.partition("\n")[0] for entry in found], name
        for entry in found:
            parts = re.findall(r"^\*\*(Asked|Done|Figure|Follows)\*\*", entry, re.M)
            assert parts == ["Asked", "Done", "Figure", "Follows"], f"{name}: {entry.partition(chr(10))[0]}"
