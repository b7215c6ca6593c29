"""Write the static site: one page, its scripts and style, the recordings as scripts (a page opened from a file may
not fetch), and one script with the custom element <specviz-trace> for other people's pages.

All links are relative. Parts that need an engine say so."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from .. import ASSETS, VERSION
from ..engine.cards import card_data
from ..lab.recordings import library, library_trace
from ..methods import catalogue
from ..trace.file_writer import write_file
from ..trace.page import to_html, viewer_assets
from ..trace.scripts import scripts_below

STATIC = Path(__file__).parent / "static"
PANELS = ASSETS / "panels"
LARGEST = 25 * 2**20  # bytes of all files
ARXIV = re.compile(r"arXiv (\d{4}\.\d{5})")
PLACEHOLDER = [{"type": "placeholder"}]
FRONT_MATTER = """---
title: specviz, recorded
emoji: "\U0001f333"
colorFrom: indigo
colorTo: green
sdk: static
app_file: index.html
short_description: Recorded runs of speculative decoding, without a server
license: apache-2.0
tags:
  - speculative-decoding
  - llm
  - visualization
  - education
---

# specviz, recorded

Recorded runs of speculative decoding, the chapters of Learn, and a place to open trace files: files alone, no server. Open
`index.html`, or put the folder on any web server, under any path. Runs of your own need the engine: `pip install specviz`, then
`specviz`.

Static Spaces are free for everyone. A Space that runs the engine needs hardware: docs/howto/serve-a-class.md of the repository.

Papers whose methods are recorded here: {papers}.

A trace on a page of your own: `<script src="specviz-trace.js"></script>`, then
`<specviz-trace src="run.jsonl.gz" height="640"></specviz-trace>`.
"""
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src data: blob:; connect-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)
CARDS = (
    "speculative",
    "prompt_lookup",
    "medusa",
    "eagle",
    "draft_tree",
    "block_verification",
    "lookahead",
    "layerskip",
    "confidence_stop",
    "suffix_decoding",
)  # methods of the cards to print
PAPERS = (
    "speculative",
    "specinfer",
    "sequoia",
    "block_verification",
    "medusa",
    "hydra",
    "eagle",
    "eagle2",
    "eagle3",
    "kangaroo",
    "pard",
    "suffix_or_draft",
)  # exact methods that write 1.5 tokens a pass and more with the embedded models (docs/bench.md); their papers are linked
CARD_PARTS = (
    ("What it does", "summary"),
    ("Look at", "look"),
    ("Pays off", "wins"),
    ("Does not", "loses"),
    ("Here", "differs"),
    ("Paper", "paper"),
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>specviz: speculative decoding, recorded</title>
<link rel="stylesheet" href="specviz.css">
</head>
<body>
<header><h1>specviz</h1><div role="tablist" aria-label="Views" id="tabs"></div><a href="cards.html">Cards to print</a></header>
<main>
<p id="notice" role="status"></p>
<div id="host-board" role="tabpanel"><div id="recordings"></div><div class="sv"></div></div>
<div id="host-learn" role="tabpanel" hidden></div>
<div id="host-lab" role="tabpanel" hidden></div>
<div id="host-traces" role="tabpanel" hidden></div>
</main>
<script src="viewer.js"></script>
<script src="panels.js"></script>
<script src="content.js"></script>
<script src="site.js"></script>
</body>
</html>
"""


CARDS_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>specviz: cards of ten methods, to print</title>
<link rel="stylesheet" href="specviz.css">
</head>
<body class="cards">
<main><h1>Ten methods of speculative decoding</h1>
{sheets}
</main>
</body>
</html>
"""


def files() -> dict[str, str]:
    """Return {path: content} of the site. Raises TraceError if the viewer is not whole, LabError if a recording
    cannot be read."""
    script, style = viewer_assets()
    panels = "\n".join(
        (PANELS / f"{name}.js").read_text(encoding="utf-8")
        for name in scripts_below(PANELS, "P|SpecVizPanels")
    )
    runs = library()
    found = {
        "README.md": FRONT_MATTER.replace("{papers}", paper_links(recorded_methods(runs))),
        "index.html": PAGE.format(policy=POLICY),
        "cards.html": cards_page(),
        "viewer.js": script,
        "panels.js": panels,
        "site.js": read("site.js"),
        "specviz.css": "\n".join(
            [read("site.css"), style, (PANELS / "panels.css").read_text(encoding="utf-8")]
        ),
        "content.js": f"globalThis.SpecVizSite = {json_for_script(content(runs))};\n",
        "specviz-trace.js": read("specviz_trace.js").replace(
            "PAGE_OF_A_TRACE", json_for_script(to_html(PLACEHOLDER))
        ),
    }
    for run in runs:
        text = library_trace(run["name"])
        found[f"traces/{run['name']}.js"] = (
            f"SpecVizSite.opened({json_for_script(run['name'])}, {json_for_script(text)});\n"
        )
    return found


def recorded_methods(runs: list[dict[str, Any]]) -> list[str]:
    """Return the keys of the methods that recordings show, in their order."""
    records = (json.loads(line) for run in runs for line in library_trace(run["name"]).splitlines())
    return list(dict.fromkeys(one["method"]["key"] for one in records if one["type"] == "header"))


def paper_links(keys: Sequence[str] = PAPERS) -> str:
    """Return Markdown links to the papers of methods; the hub shows a Space on the pages of the papers that its README
    links."""
    methods = (catalogue()[key] for key in keys if key in catalogue())
    papers = {number: method.title for method in methods for number in ARXIV.findall(method.paper)}
    return ", ".join(f"[{title}](https://arxiv.org/abs/{number})" for number, title in papers.items())


def cards_page() -> str:
    """Return a page of cards, each of one printed sheet, of the methods CARDS."""
    sheets = []
    for key in CARDS:
        card = card_data(catalogue()[key])
        parts = "".join(f"<dt>{name}</dt><dd>{escape(card[field])}</dd>" for name, field in CARD_PARTS)
        sheets.append(
            f"<article><h2>{escape(card['title'])}</h2><p>{escape(card['family'])}, {escape(card['exactness'])}</p>"
            f"<dl>{parts}</dl></article>"
        )
    return CARDS_PAGE.format(policy=POLICY, sheets="\n".join(sheets))


def json_for_script(value: Any) -> str:
    """Return JSON that is inert inside a script or a script file: no tag can open or close, no line separator ends a
    string."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def read(name: str) -> str:
    """Return a file of static/."""
    return (STATIC / name).read_text(encoding="utf-8")


def content(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the page's script knows: version, methods, recordings."""
    return {
        "version": VERSION,
        "library": runs,
        "catalogue": [card_data(method) for method in catalogue().values()],
        "traces": {},
    }


def write_site(folder: Path) -> dict[str, int]:
    """Write the site into a folder, which is created; files of the same names are replaced. Return {path: bytes}.
    Raises WriteError, and ValueError if it would be larger than LARGEST."""
    made = files()
    sizes = {path: len(text.encode("utf-8")) for path, text in made.items()}
    if sum(sizes.values()) > LARGEST:
        raise ValueError(f"the site would have {sum(sizes.values()) / 2**20:.1f} MB")
    for path, text in made.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        write_file(place, text)
    return sizes


def report(sizes: dict[str, int]) -> str:
    """Return the sizes as JSON."""
    return json.dumps({"files": sizes, "bytes": sum(sizes.values())}, indent=2)
