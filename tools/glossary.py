"""Write docs/glossary.md from assets/glossary.json: ``python -m tools.glossary``.

The JSON is the one source; the Learn tab may read its ``numbers``, too.
"""

from __future__ import annotations

import json
from typing import Any

from specviz import ASSETS, ROOT
from specviz.trace.file_writer import write_file

HEAD = """# Glossary

One word for each idea, and what vLLM, transformers, llama.cpp and the papers call it. An empty cell: no established word.
Generated from `assets/glossary.json` by `python -m tools.glossary`.

"""
COLUMNS = {
    "term": "term",
    "meaning": "meaning",
    "code": "here",
    "vllm": "vLLM",
    "transformers": "transformers",
    "llama_cpp": "llama.cpp",
    "papers": "papers",
}


def read() -> dict[str, list[dict[str, Any]]]:
    """Return the content of assets/glossary.json."""
    return json.loads((ASSETS / "glossary.json").read_text(encoding="utf-8"))


def page() -> str:
    """Return docs/glossary.md as Markdown."""
    words = read()
    terms = [[term[key] for key in COLUMNS] for term in words["terms"]]
    numbers = [
        [
            f"**{row['ours']}**",
            f"`{row['key']}`",
            row["definition"],
            "; ".join(f"{name} ({who})" for name, who in row["others"]),
        ]
        for row in words["numbers"]
    ]
    return (
        HEAD
        + "## Terms\n\n"
        + table(list(COLUMNS.values()), terms)
        + "\n## Numbers by other names\n\nEach figure has one definition, in `specviz/trace/metrics.py`.\n\n"
        + table(["number", "key", "definition", "other names"], numbers)
    )


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    write_file(ROOT / "docs" / "glossary.md", page())
