"""Every picture of the board as a file: a drawing that needs no page, with what it shows and where it comes
from."""

from __future__ import annotations

import json
import struct
import xml.etree.ElementTree as ET

import pytest

from . import sample
from .test_board import LOAD, at_end

SVG = "{http://www.w3.org/2000/svg}"
PROMPT = "<b>two & three</b>"
RACE = sample.race(("plain", "chain", "tree"), prompt=PROMPT, tokens=60)
WHERE = {
    "the passes": ".passes",
    "the draft": ".p-insp",
    "the throughput": ".p-rate",
    "the times": ".p-time",
    "this picture": ".body",
}


def saved(page, what: str, kind: str = "SVG") -> bytes:
    with page.expect_download() as told:
        # The menu lists what can be saved when it is opened, and closes when the focus leaves it.
        page.wait_for_function(
            """(label) => {
                const key = document.querySelector(`.exports [aria-label="${label}"]`), menu = key.closest("details");
                if (menu.open && key.offsetParent) return key.click(), true;
                menu.open = !menu.open;
                return false;
            }""",
            arg=f"Save {what} as {kind}",
            timeout=60_000,
        )
    assert told.value.suggested_filename.endswith("." + kind.lower())
    return told.value.path().read_bytes()


@pytest.mark.parametrize("layout", ["watch", "race"])
def test_every_picture_is_saved_whole_and_says_where_it_comes_from(drive, settled, layout) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(RACE))
        page.evaluate(f"board.setLayout('{layout}')")
        at_end(page, settled)
        page.evaluate("board.goto({ lane: 2, round: 2, tab: 'mask' })")
        settled(page)
        for what in WHERE:
            root = ET.fromstring(saved(page, what))
            text = " ".join(t.text or "" for t in root.iter(SVG + "text"))
            assert len(list(root.iter())) > 25, what
            for fact in (
                "Draft tree",
                PROMPT,
                "greedy" if RACE[0]["sampling"]["temperature"] == 0 else "temperature",
                "drawn by specviz",
            ):
                assert fact in " ".join(text.split()), (what, fact)
            names = {name for node in root.iter() for name in node.attrib}
            assert not names & {"class", "style"} and not any(n.startswith("on") for n in names), what
            assert not any(
                "var(" in v or "color-mix" in v for node in root.iter() for v in node.attrib.values()
            ), what
        bitmap = saved(page, "the draft", "PNG")
        assert bitmap[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">I", bitmap[16:20])[0] == 3600

    drive(use, accept_downloads=True)


def test_on_a_projector_every_drawn_letter_has_fourteen_pixels(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(RACE))
        at_end(page, settled)
        for tab in ("why", "mask", "log"):
            page.evaluate(f"board.goto({{ lane: 2, round: 2, tab: '{tab}' }})")
            settled(page)
            small = page.evaluate("""() => [...document.querySelectorAll('.sv *')].filter((e) => e.checkVisibility() && !e.closest('.tip, .mask')
                && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).map((e) => {
                    const svg = e.ownerSVGElement, k = svg ? svg.clientWidth / svg.viewBox.baseVal.width : 1;
                    return [parseFloat(getComputedStyle(e).fontSize) * k, e.textContent, e.getAttribute('class')];
                }).filter(([size, , cls]) => size < 13.9 && !/chip|eos/.test(cls))""")
            assert small == [], (tab, small[:5])

    drive(use, size=(1860, 1080))


def test_the_probabilities_are_saved_as_a_picture_of_their_own(drive, settled) -> None:
    """They stand on the page as HTML: what is saved has every figure of the card, and nothing that needs
    the page."""

    def use(page):
        page.evaluate(LOAD, json.dumps(RACE))
        at_end(page, settled)
        judge = next(
            r
            for r in RACE
            if r["type"] == "judge" and r["lane"] == 1 and r["verdict"] == "rejected" and r["a"] is not None
        )
        page.evaluate(
            "(at) => board.goto(at)",
            {"lane": 1, "round": judge["round"], "node": judge["node"], "tab": "why"},
        )
        settled(page)
        root = ET.fromstring(saved(page, "this picture"))
        text = " ".join(" ".join(t.text or "" for t in root.iter(SVG + "text")).split())
        for fact in (
            "Rejected",
            f"{judge['a']:.3f}",
            f"{judge['u']:.3f}",
            "p target",
            "q draft",
            "residual",
            "drawn by specviz",
        ):
            assert fact in text, (fact, text)
        assert len(list(root.iter(SVG + "rect"))) > 8
        assert not any(
            "var(" in v or "color-mix" in v or v == "NaN"
            for node in root.iter()
            for v in node.attrib.values()
        )

    drive(use, accept_downloads=True)
