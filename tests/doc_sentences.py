"""The sentences of a page of the documentation: of its paragraphs and lists, and each row of its tables."""

from __future__ import annotations

import re

END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z`\"(\[]|n`)")


def sentences(page: str) -> list[str]:
    """Return the sentences of a page of Markdown, in order. A table is a sentence for each row but its head;
    the figures of a measurement (rows of "n of m") count as one sentence with their head."""
    found: list[str] = []
    for block in re.split(r"\n\s*\n", page):
        lines = [line.strip() for line in block.strip().splitlines()]
        if not lines or lines[0].startswith(("#", "![", "<")) or block.startswith("    "):
            continue
        if lines[0].startswith("|"):
            head, _, *rows = lines
            found += [head] if all(re.search(r"\| \d+ of \d+ \|", row) for row in rows) else rows
            continue
        items = re.split(r"\n(?=- |\d+\. )", "\n".join(lines))
        for item in items:
            text = " ".join(item.split())
            found += [one for one in END.split(re.sub(r"^(- |\d+\. )", "", text)) if one]
    return found
