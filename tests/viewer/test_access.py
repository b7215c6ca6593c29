"""Everybody can use the board: an axe scan, contrast in both themes, every control by keyboard alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import axe_playwright_python
import pytest

from specviz.trace.page import viewer_assets

from . import sample
from .lenses import LENSES, lensed
from .test_board import LOAD

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
TRACE = lensed(
    sample.race(("plain", "chain", "tree"), tokens=60),
    2,
    {k: LENSES[k] for k in ("match", "sequoia", "length", "layers")},
)
VIEWS = {
    "race": "board.setLayout('race'); board.goto({ lane: 2, round: 4 })",
    "why": "board.setLayout('watch'); board.goto({ lane: 1, round: 4, node: 0, tab: 'why' })",
    "mask": "board.setLayout('watch'); board.goto({ lane: 2, round: 4, node: 1, tab: 'mask' })",
    "log": "board.setLayout('watch'); board.goto({ lane: 2, round: 4, tab: 'log' })",
    "lens": "board.setLayout('watch'); board.goto({ lane: 2, round: 4, tab: 'lens' })",
}


@pytest.mark.parametrize(
    "size", [(1400, 1000), pytest.param((390, 844), marks=pytest.mark.thorough)], ids=["desktop", "phone"]
)
def test_axe_finds_nothing_serious(drive, settled, size) -> None:
    def use(page):
        page.evaluate(
            "() => { document.documentElement.lang = 'en'; document.title = 'board'; const m = document.createElement('main'), h = document.createElement('h1'); h.textContent = 'Board'; document.body.append(m); m.append(h, document.querySelector('.sv')); }"
        )
        page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
        page.evaluate(LOAD, json.dumps(TRACE))
        seen = 0
        for dark, names in ((False, VIEWS), (True, ["race", "why"])):
            page.evaluate(
                "(d) => { document.body.classList.toggle('dark', d); document.body.style.background = d ? '#0d0f12' : '#fafaf9'; document.body.style.color = d ? '#e9eaec' : '#1a1c20'; }",
                dark,
            )
            for name in names:
                page.evaluate(VIEWS[name])
                settled(page)
                found = page.evaluate(
                    "axe.run(document).then((r) => ({ passes: r.passes.length, bad: r.violations.map((v) => [v.impact, v.id, v.nodes[0].html]) }))"
                )
                assert [v for v in found["bad"] if v[0] in ("serious", "critical")] == [], (
                    name,
                    dark,
                    found["bad"],
                )
                seen += found["passes"]
        assert seen > 100

    drive(use, size=size)


def _theme(css: str, selector: str) -> dict[str, str]:
    body = re.search(re.escape(selector) + r" \{(.*?)\n\}", css, re.S)[1]
    return {
        k: (re.search(r"#[0-9a-f]{6}", v) or [""])[0]
        for k, v in re.findall(r"--sv-([a-z0-9]+):\s*([^;]+);", body)
    }


def _contrast(a: str, b: str) -> float:
    def light(h: str) -> float:
        c = [int(h[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in c)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    x, y = sorted((light(a), light(b)), reverse=True)
    return (x + 0.05) / (y + 0.05)


@pytest.mark.parametrize("selector", [".sv", ".dark .sv"], ids=["light", "dark"])
def test_text_and_lines_stand_out(selector) -> None:
    t = _theme(viewer_assets()[1], selector)
    for ground in ("surface", "sunken", "bg"):
        for ink in ("ink", "ink2", "ink3", "rejtext"):
            assert _contrast(t[ink], t[ground]) >= 4.5, (ink, ground)
        for line in ("acc", "rej", "cor", "bon", "verify"):
            assert _contrast(t[line], t[ground]) >= 3, (line, ground)


def test_the_whole_tour_without_a_pointer(drive, settled) -> None:
    """Play, step, look inside a round, choose a node, read every tab, filter, switch lanes, zoom: keys
    only, focus always seen."""

    def use(page):
        page.evaluate(LOAD, json.dumps(TRACE))
        page.evaluate("board.setLayout('watch'); board.goto({ lane: 2, round: 3 })")
        settled(page)
        reach, steps = {}, 0
        while steps < 90:
            page.keyboard.press("Tab")
            steps += 1
            here = page.evaluate("""(() => { const e = document.activeElement, c = getComputedStyle(e);
              if (e === document.body) return null;
              const name = e.dataset.do || e.dataset.speed && 'speed' || e.dataset.filter && 'filter' || e.dataset.pick && 'lane ' + e.dataset.pick || e.dataset.step && 'step ' + e.dataset.step || e.dataset.zoom || e.dataset.tab && 'tab' || e.classList[0];
              return [name, c.outlineStyle !== 'none' && parseFloat(c.outlineWidth) > 0]; })()""")
            if here is None:
                break
            reach.setdefault(here[0], []).append(here[1])
        assert all(all(seen) for seen in reach.values()), reach
        for name in (
            "play",
            "back",
            "next",
            "phaseback",
            "phasenext",
            "speed",
            "scrub",
            "filter",
            "marks",
            "lane 1",
            "lane 2",
            "stage",
            "step 1",
            "step 4",
            "treebox",
            "in",
            "out",
            "fit",
            "tab",
            "metric",
        ):
            assert name in reach, (name, sorted(reach))
        data = lambda k: (settled(page), page.get_attribute(".sv", k))[1]  # noqa: E731
        press = lambda what, key: (page.focus(what), page.keyboard.press(key))  # noqa: E731
        for lane in (1, 2):
            press(f"[data-pick='{lane}']", "Enter")
            settled(page)
            assert page.evaluate("board.where().lane") == lane
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        was = int(data("data-round"))
        page.keyboard.press("Shift+ArrowRight")
        assert int(data("data-round")) == was + 1 and data("data-phase") == "1"
        press("[data-step='3']", "Enter")
        assert data("data-phase") == "3"
        press(".treebox", "ArrowDown")
        settled(page)
        one = page.evaluate("board.where().node")
        page.keyboard.press("ArrowDown")
        settled(page)
        assert page.evaluate("board.where().node") != one
        page.focus(".sub [aria-selected=true]")
        tabs = []
        for _ in range(5):
            page.keyboard.press("ArrowRight")
            settled(page)
            tabs.append(page.evaluate("document.activeElement.dataset.tab"))
        assert sorted(tabs) == ["lens", "log", "mask", "token", "why"]
        press("[data-filter=rejected]", "Enter")
        assert data("data-filter") == "rejected" and page.locator(".t.dim").count() > 0
        page.keyboard.press("Escape")
        assert data("data-filter") == ""

    drive(use)
