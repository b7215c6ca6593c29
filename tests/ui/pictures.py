"""Take the pictures of the documentation anew: ``python -m tests.ui.pictures [NAME ...]`` writes
docs/NAME.png; look at each.

The page opens with the shipped recording. The schema's pictures, and that of a picture, are of live runs,
so they need the embedded models.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any, NamedTuple

from ..browser import start
from .conftest import free_port
from .share import ROOT, wait_for

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
INVENTED = {
    "prompt": "Invent a person",
    "methods": ["grammar_forced"],
    "length": 96,
    "tab": "watch",
    "generation": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    },
}
SEVERAL = {
    "prompt": "Name three colours.",
    "methods": ["speculative"],
    "length": 24,
    "temperature": 0.8,
    "tab": "watch",
    "generation": {"n": 3},
}
PAINTED = {
    "prompt": "a red heart",
    "methods": ["speculative_jacobi", "lantern"],
    "target": "specviz-pictures",
    "temperature": 1,
    "tab": "race",
}
SEEN = {
    "prompt": "What does the picture show?",
    "methods": ["multimodal"],
    "target": "specviz-vision",
    "length": 64,
    "tab": "watch",
}
GROWN = {
    "prompt": "a red heart",
    "methods": ["collaborative_decoding"],
    "target": "specviz-scales",
    "temperature": 0.7,
    "length": 128,
    "tab": "watch",
    "generation": {"guidance_scale": 4},
}
STATES = {
    "prompt": "Write a short story about a fox.",
    "methods": ["stree"],
    "target": "Llama-specviz-mamba",
    "length": 64,
    "tab": "watch",
}
ROUTED = {
    "prompt": "Write a short story about Ada.",
    "methods": ["blockffn"],
    "target": "Llama-specviz-blockffn",
    "length": 96,
    "tab": "watch",
}
STATE = "document.querySelector('#board .sv').dataset.state"


REFUSED = "() => { const b = document.querySelector('#board .sv').svBoard, l = [...b.board.st.lanes.values()][0];\
  const r = l.rounds.find((x) => x.i > 8 && x.path.length && x.trials.some((j) => j.verdict === 'rejected')); b.goto({ round: r.i, phase: 4 }); }"
ENDED = "() => { const b = document.querySelector('#board .sv').svBoard; b.goto({ t: b.end() }); }"
LENS = "() => { const b = document.querySelector('#board .sv').svBoard; b.goto({ round: 9, tab: 'lens' });\
  document.querySelector('#board .insp')?.scrollIntoView(); }"
TO_LANES = "() => document.querySelector('#board .p-stage').scrollIntoView()"


class Scene(NamedTuple):
    tab: str
    width: int = 1440
    height: int = 900
    dark: bool = False
    run: dict[str, Any] | None = None
    then: str = ""  # where the board is left


SCENES = {
    "watch-desktop": Scene("watch", then=REFUSED),
    "race-desktop": Scene("race", then=ENDED),
    "lab-desktop": Scene("lab"),
    "learn-desktop": Scene("learn"),
    "traces-desktop": Scene("traces"),
    "race-dark": Scene("race", dark=True, then=ENDED),
    "watch-phone": Scene("watch", 390, 844, then=REFUSED),
    "schema-desktop": Scene("watch", 1440, 1180, run=INVENTED),
    "schema-phone": Scene("watch", 390, 844, run=INVENTED, then=TO_LANES),
    "answers-desktop": Scene("watch", run=SEVERAL),
    "picture-desktop": Scene("race", 1440, 1100, run=PAINTED),
    "experts-desktop": Scene("watch", 1440, 1400, run=ROUTED, then=LENS),
    "vision-desktop": Scene("watch", 1440, 1000, run=SEEN),
    "vision-phone": Scene("watch", 390, 844, run=SEEN, then=TO_LANES),
    "picture-phone": Scene(
        "watch", 390, 844, run=PAINTED | {"methods": ["speculative_jacobi"], "tab": "watch"}, then=TO_LANES
    ),
    "scales-desktop": Scene("watch", 1440, 1000, run=GROWN),
    "states-desktop": Scene("watch", 1440, 1000, run=STATES),
    "states-phone": Scene("watch", 390, 844, run=STATES, then=TO_LANES),
    "scales-phone": Scene("watch", 390, 844, run=GROWN, then=TO_LANES),
}


def main(given: list[str] | None = None) -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("names", nargs="*", default=list(SCENES), metavar="NAME", help=", ".join(SCENES))
    ask.add_argument("--into", default=str(ROOT / "docs"), metavar="FOLDER")
    args = ask.parse_args(given)
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "app.py"], cwd=ROOT, env=os.environ | {"GRADIO_SERVER_PORT": str(port)}
    )
    try:
        take(f"http://127.0.0.1:{port}/", args.names, args.into)
    finally:
        server.terminate()
        server.wait(timeout=30)


def take(url: str, names: list[str], into: str) -> None:
    from playwright.sync_api import sync_playwright

    wait_for(url)
    with sync_playwright() as play:
        browser = start(play)
        for name in names:
            scene = SCENES[name]
            page = browser.new_page(
                viewport={"width": scene.width, "height": scene.height},
                color_scheme="dark" if scene.dark else "light",
            )
            page.goto(url + ("?__theme=dark" if scene.dark else ""))
            page.wait_for_selector("#board .lane", state="attached", timeout=120_000)
            page.click(f"#tab-{scene.tab}")
            if scene.run:
                page.evaluate("config => SpecVizPage.run(config)", scene.run)
                page.wait_for_function(f"{STATE} === 'live'", timeout=300_000)
                page.wait_for_function(f"{STATE} === 'done'", timeout=300_000)
            if scene.then:
                page.evaluate(scene.then)
            page.mouse.move(1, 1)
            page.wait_for_timeout(3000)  # fonts, charts and what opens by itself
            page.screenshot(path=f"{into}/{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
