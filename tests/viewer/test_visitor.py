"""What stopped a newcomer: things that lay over each other, answers out of sight, and figures that were not
those of the run."""

from __future__ import annotations

import json

import pytest

from ..message_codes import viewer_texts
from . import sample
from .test_board import LOAD, at_end

TEXTS = viewer_texts()

RUN = sample.race(("plain", "chain"), mode="recorded")
# Pairs of what stands in the player's row that lie on each other.
OVER = """() => { const all = [...document.querySelectorAll('.transport .keys, .transport .seg, .transport .where > *, .legend > *')]
    .filter((e) => e.checkVisibility()).map((e) => [e.className || e.textContent, e.getBoundingClientRect()]);
  return all.flatMap(([a, x], i) => all.slice(i + 1).filter(([, y]) => x.right > y.left + 1 && y.right > x.left + 1 && x.bottom > y.top + 1 && y.bottom > x.top + 1).map(([b]) => [a, b])); }"""


@pytest.mark.parametrize("width", [1376, 1200, 1021, pytest.param(700, marks=pytest.mark.thorough)])
def test_nothing_lies_over_the_player_however_wide_the_board_is(drive, settled, width) -> None:
    def use(page):
        page.evaluate(f"document.querySelector('.sv').style.width = '{width}px'")
        for layout in ("race", "watch"):
            page.evaluate(LOAD, json.dumps(RUN))
            page.evaluate("(l) => board.setLayout(l)", layout)
            page.evaluate("board.goto({ lane: 1, round: 2, phase: 4 })")
            settled(page)
            assert page.evaluate(OVER) == []
        page.evaluate(
            "document.querySelector('.p-insp .sum').textContent = 'The draft guessed 4 tokens as a tree; the target kept a path of 2 and corrected the next: 3 tokens from one pass.'"
        )
        assert (
            page.evaluate(
                "(() => { const h = document.querySelector('.p-insp .phead'); return h.scrollHeight - h.clientHeight; })()"
            )
            <= 0
        )

    drive(use, size=(1440, 900))


@pytest.mark.parametrize("size", [(1100, 700), (390, 844)], ids=["desk", "phone"])
def test_what_is_asked_for_comes_into_sight_above_what_covers_the_board(drive, settled, size) -> None:
    def use(page):
        page.evaluate(
            "document.body.style.setProperty('--sv-below', '150px'); document.body.style.paddingBottom = '150px'"
        )
        page.evaluate(LOAD, json.dumps(RUN))
        page.evaluate("board.setLayout('watch'); board.goto({ lane: 1, round: 3, phase: 4, tab: 'token' })")
        settled(page)
        assert page.evaluate("scrollY") == 0  # who only goes to a round is left where he reads
        page.locator(".lane .stage .live .t").nth(2).click()
        settled(page)
        box = page.locator(".short p").bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= size[1] - 150
        top = page.evaluate(
            "(() => { const t = document.querySelector('.lane .term'); t.scrollIntoView({ block: 'center' }); return t.getBoundingClientRect().top; })()"
        )
        page.evaluate(
            "(y) => { document.body.style.setProperty('--sv-below', innerHeight - y - 60 + 'px'); }", top
        )
        page.hover(".lane .term")
        assert page.locator(".lane .term .tip").bounding_box()["y"] < top

    drive(use, size=size, reduced_motion="reduce")


def test_while_a_run_is_loaded_the_last_one_is_named_as_what_it_is(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(RUN))
        said = lambda: [page.text_content(s) for s in (".mode", ".notice .say")]  # noqa: E731
        for number, state in enumerate(("loading", "queued"), 1):
            page.evaluate(
                "(f) => board.push(JSON.stringify(f))",
                {"s": number, "e": [], "status": {"state": state, "text": "Soon."}},
            )
            settled(page)
            assert said() == [
                "Recorded",
                "Soon." + TEXTS["notice.waits"].format(what=TEXTS["notice.recording"]),
            ]
            assert float(page.evaluate("getComputedStyle(document.querySelector('.headline')).opacity")) < 0.6
        page.evaluate(
            "(f) => board.push(JSON.stringify(f))",
            {
                "s": 9,
                "new": True,
                "run": "b",
                "e": sample.race(("chain",), mode="live")[:-1],
                "status": {"state": "live", "text": ""},
            },
        )
        settled(page)
        assert said()[0] == "Live" and page.locator(".sv.last").count() == 0

    drive(use)


def test_a_run_stopped_before_its_first_token_leaves_the_last_one_under_its_own_name(drive, settled) -> None:
    """It was the old recording that stood there as "Stopped"."""

    def use(page):
        said = lambda: [page.text_content(s) for s in (".mode", ".notice .say")]  # noqa: E731
        tell = lambda f: (page.evaluate("(f) => board.push(JSON.stringify(f))", f), settled(page))  # noqa: E731
        stopped = {"state": "stopped", "text": "Stopped before the first token."}
        page.evaluate(LOAD, json.dumps(RUN))
        tell({"s": 1, "e": [], "status": {"state": "loading", "text": "Soon."}})
        tell({"s": 2, "e": [], "status": stopped})
        assert said() == [
            "Recorded",
            stopped["text"] + TEXTS["notice.stays"].format(what=TEXTS["notice.recording"]),
        ]
        assert float(page.evaluate("getComputedStyle(document.querySelector('.headline')).opacity")) == 1
        live = sample.race(("chain",), mode="live")
        tell({"s": 9, "new": True, "run": "b", "e": live[:-1], "status": {"state": "live", "text": ""}})
        tell({"s": 10, "e": live, "snap": True, "status": {"state": "done", "text": ""}})
        tell({"s": 11, "e": [], "status": {"state": "queued", "text": "One before."}})
        tell({"s": 12, "e": [], "status": stopped})
        assert said() == [
            "Finished",
            stopped["text"] + TEXTS["notice.stays"].format(what=TEXTS["notice.before"]),
        ]
        tell({"s": 13, "e": [], "status": {"state": "error", "text": "It failed."}})
        assert said() == ["Error", "It failed." + TEXTS["notice.stays"].format(what=TEXTS["notice.before"])]
        tell({"s": 20, "new": True, "run": "c", "e": live[:-1], "status": {"state": "live", "text": ""}})
        tell(
            {
                "s": 21,
                "e": live[:-1],
                "snap": True,
                "status": {"state": "stopped", "text": "Stopped; what was decoded is kept."},
            }
        )
        assert said() == ["Stopped", "Stopped; what was decoded is kept."]

    drive(use)


def test_a_figure_of_the_place_reached_says_so_and_the_end_is_the_end_of_all(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(RUN))
        page.evaluate("board.setLayout('watch'); board.goto({ lane: 1, round: 2 })")
        settled(page)
        so_far = "[document.querySelector('.lane .fin').textContent.includes('so far'), document.querySelectorAll('.cellsrow .v small').length && [...document.querySelectorAll('.cellsrow .v small')].filter((e) => e.textContent === 'so far').length]"
        assert page.evaluate(so_far) == [True, 4]
        at_end(page, settled)
        assert page.evaluate(so_far) == [False, 0]
        assert page.evaluate("board.board.passes.shown.map((x) => x.k === x.lane.committed)") == [True]
        page.evaluate("board.setLayout('race'); board.board.seekTime(board.board.end() / 3)")
        settled(page)
        assert page.locator(".rtable td.sofar").count() == 2 and page.locator(".rtable td.best").count() == 0
        at_end(page, settled)
        assert page.locator(".rtable td.sofar").count() == 0 and page.locator(".rtable td.best").count() > 0

    drive(use)


@pytest.mark.parametrize("size", [(1440, 900), (1920, 1080)], ids=["desk", "projector"])
def test_a_race_is_short_until_its_parts_are_opened_and_uses_the_width(drive, settled, size) -> None:
    """It was 2,570 px tall; verdict, passes, proof and table come first, the rest opens when asked."""

    def use(page):
        page.evaluate(LOAD, json.dumps(RUN))
        page.evaluate("board.setLayout('race')")
        at_end(page, settled)
        tall = page.evaluate("document.querySelector('.sv').offsetHeight")
        tops = page.evaluate(
            "['.won', '.passes .prows', '.parts', '.rtable', '.opens'].map((s) => document.querySelector('.sv ' + s).getBoundingClientRect().top)"
        )
        assert tall < 1700 and tops == sorted(tops)
        assert (
            page.evaluate(
                "[...document.querySelectorAll('.opens')].filter((e) => e.checkVisibility()).map((e) => e.getAttribute('aria-expanded'))"
            )
            == ["false"] * 3
        )
        assert page.locator(".passes").bounding_box()["width"] > 0.9 * size[0]
        page.click("[aria-label='Texts of all methods']")
        settled(page)
        assert page.evaluate("document.querySelector('.sv').offsetHeight") > tall + 50

    drive(use, size=size)
