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
