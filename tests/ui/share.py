"""What the page costs the engine on one machine, as figures for docs/log/2026-11/page.md; it needs a quiet
machine.

    python -m tests.ui.share [--tokens 256] [--turns 3] [--methods speculative ...] [--tabs watch race]

Runs take turns: through the interface for programs with no page open, then on each tab of a page in
Chromium. Of each it prints the tokens a second of every lane by the engine's own clock (the median of the
turns), what share of the speed without a page that is, and how much of one core Chromium's rendering
process took while the run lasted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

from ..browser import start
from .conftest import free_port

ROOT = Path(__file__).parents[2]
PROMPT = "Write a long story about a fox, an owl and the river behind the mill."
TICKS = os.sysconf("SC_CLK_TCK")


def main(given: list[str] | None = None) -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--tokens", type=int, default=256)
    ask.add_argument("--turns", type=int, default=3)
    ask.add_argument("--methods", nargs="+", default=["speculative"])
    ask.add_argument("--tabs", nargs="+", default=["watch", "race"])
    told = ask.parse_args(given)
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "app.py"], cwd=ROOT, env=os.environ | {"GRADIO_SERVER_PORT": str(port)}
    )
    try:
        report(measure(f"http://127.0.0.1:{port}/", told))
    finally:
        server.terminate()
        server.wait(timeout=30)


def measure(url: str, told: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """{"no page": ..., tab: ...}, each {speeds: {title: [tokens/s, a turn]}, share: [of one core, a
    turn]}."""
    from gradio_client import Client
    from playwright.sync_api import sync_playwright

    wait_for(url)
    client = Client(url, verbose=False)
    out: dict[str, dict[str, Any]] = {name: {"speeds": {}, "share": []} for name in ("no page", *told.tabs)}
    without_page(client, told)  # loads the models
    for _ in range(told.turns):
        note(out["no page"], without_page(client, told))
        for tab in told.tabs:
            with sync_playwright() as play:
                browser = start(play)
                records, share = on_page(
                    browser.new_page(viewport={"width": 1440, "height": 900}), url, tab, told
                )
                browser.close()
            note(out[tab], records)
            out[tab]["share"].append(share)
    return out


def without_page(client: Any, told: argparse.Namespace) -> list[dict]:
    lines = client.submit(
        prompt=PROMPT, methods=told.methods, max_new_tokens=told.tokens, api_name="/run"
    ).result(timeout=600)
    return json.loads(lines)["e"]


def on_page(page: Any, url: str, tab: str, told: argparse.Namespace) -> tuple[list[dict], float]:
    """The records of a run that was watched, and the share of one core that the rendering process took
    meanwhile."""
    page.goto(url)
    page.wait_for_selector("#board .lane", state="attached")
    page.click(f"#tab-{tab}")
    config = {"prompt": PROMPT, "methods": told.methods, "length": told.tokens, "tab": tab}
    live = "document.querySelector('#board .sv').dataset.state"
    page.evaluate("config => SpecVizPage.run(config)", config)
    page.wait_for_function(f"{live} === 'live'", timeout=600_000)
    before, begun = renderers(), time.monotonic()
    page.wait_for_function(f"{live} === 'done'", timeout=600_000, polling=250)
    took, lasted = renderers(), time.monotonic() - begun
    busiest = max(took[pid] - before.get(pid, 0) for pid in took)
    return page.evaluate("document.querySelector('#board .sv').svBoard.trace()"), busiest / TICKS / lasted


def renderers() -> dict[int, int]:
    """Ticks of the processor that each rendering process of this program's browser has taken, by its
    number."""
    found, of = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = path.read_text().rpartition(")")[2].split()
            of[int(path.parent.name)] = int(stat[1])
            if b"--type=renderer" in (path.parent / "cmdline").read_bytes():
                found[int(path.parent.name)] = int(stat[11]) + int(stat[12])
        except OSError:  # it has ended meanwhile
            continue

    def ours(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = of.get(pid, 0)
        return pid == os.getpid()

    return {pid: ticks for pid, ticks in found.items() if ours(pid)}


def note(place: dict[str, Any], records: list[dict]) -> None:
    titles = {r["lane"]: r["method"]["title"] for r in records if r["type"] == "header"}
    for done in (r for r in records if r["type"] == "done"):
        speed = done["totals"]["tokens"] / done["totals"]["seconds"]
        place["speeds"].setdefault(titles[done["lane"]], []).append(speed)


def report(out: dict[str, dict[str, Any]]) -> None:
    alone = {title: median(speeds) for title, speeds in out["no page"]["speeds"].items()}
    print(f"load {os.getloadavg()[0]:.1f}")
    for name, place in out.items():
        lanes = ", ".join(
            f"{title} {median(speeds):.0f} tokens/s ({median(speeds) / alone[title]:.2f})"
            for title, speeds in place["speeds"].items()
        )
        paints = f"; the page took {median(place['share']):.0%} of one core" if place["share"] else ""
        print(f"{name}: {lanes}{paints}")


def wait_for(url: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            urlopen(url, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    main()
