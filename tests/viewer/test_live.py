"""A run in flight: nothing of the last one stays on the board, and what is chosen is where the board
stands."""

from __future__ import annotations

import json
import re

import pytest

from ..message_codes import viewer_texts
from . import sample

TEXTS = viewer_texts()

OLD, NEW = sample.race(), sample.race(mode="live", tokens=60)
LOAD = "(text) => board.load(JSON.parse(text))"
STAND = """() => ({ won: document.querySelector('.won').textContent, rate: [...document.querySelectorAll('.rtable td, .cellsrow .v')]
  .map((e) => e.textContent), chart: [...document.querySelectorAll('.chart .nm')].map((e) => e.textContent),
  strips: [...document.querySelectorAll('.prow .pfig')].map((e) => e.textContent).join(' '), head: document.querySelector('.headline').textContent,
  ledger: [...document.querySelectorAll('.ledger td')].map((e) => e.textContent), title: document.querySelector('.p-insp h2').textContent })"""


def frame(number: int, records: list[dict], **more) -> str:
    return json.dumps({"s": number, "e": records, "status": {"state": "live", "text": ""}, **more})


@pytest.mark.parametrize("layout", ["race", "watch"])
def test_a_new_run_clears_what_stands_on_the_board_at_its_first_frame(drive, settled, layout) -> None:
    """Also what is out of sight, which a run in flight does not paint."""
    first = [r for r in NEW if r["type"] in ("header", "vocab", "prefill")]

    def use(page):
        page.evaluate("(l) => board.setLayout(l)", layout)
        page.evaluate(LOAD, json.dumps(OLD))
        page.evaluate("board.board.edge(1)")
        settled(page)
        page.wait_for_function(
            "document.querySelector('.chart .nm')"
        )  # drawn a quarter of a second after the last time
        before = page.evaluate(STAND)
        assert (
            re.search("[1-9]", before["strips"])
            and before["chart"]
            and any(c.isdigit() for c in "".join(before["rate"]))
        )
        page.evaluate("(v) => board.push(v)", frame(5, first, new=True, run="a"))
        settled(page)
        now = page.evaluate(STAND)
        assert not [
            x for x in now["rate"] if x and x in before["rate"] and any(c in "123456789" for c in x)
        ], now["rate"]
        assert not re.search("[1-9]", now["strips"]) and now["head"] == TEXTS["headline.reading"]
        assert now["chart"] == [] and (layout == "watch" or now["won"] != before["won"])
        assert not any(x.endswith("ms") and x != "0.0 ms" for x in now["ledger"]) and "ound " not in now[
            "title"
        ].replace("Round inspector", "")

    drive(use, size=(1400, 300))


def test_after_an_empty_board_the_panels_fill_while_the_run_goes_on(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(OLD))
        page.evaluate(
            "(v) => board.push(v)",
            json.dumps(
                {
                    "s": 4,
                    "new": True,
                    "run": "n",
                    "e": [],
                    "status": {"state": "idle", "text": "A new conversation."},
                }
            ),
        )
        settled(page)
        assert page.evaluate("document.querySelector('.p-insp .body').textContent") == ""
        cut = next(i for i, r in enumerate(NEW) if r["type"] == "done")
        page.evaluate("(v) => board.push(v)", frame(5, sample.interleaved(NEW)[:cut], new=True, run="b"))
        page.wait_for_function("document.querySelector('.p-insp .body').textContent.length > 40")

    drive(use, size=(1400, 300))


def test_the_strips_count_what_the_headline_counts_between_two_of_their_drawings(drive, settled) -> None:
    records = sample.interleaved(NEW)

    def use(page):
        page.evaluate("board.setLayout('watch')")
        page.evaluate("(v) => board.push(v)", frame(5, records[:60], new=True, run="c"))
        settled(page)
        head, strip = page.evaluate(
            """(v) => { const b = board.board; board.push(v); b.passes.last = performance.now(); b.paint();
            return [".headline", ".prow.open .pn"].map((s) => document.querySelector(s).textContent); }""",
            frame(6, records[60:200]),
        )
        assert strip.split()[0] == re.search(r"in (\d+) pass", head)[1] and int(strip.split()[0]) > 3

    drive(use)


@pytest.mark.parametrize("layout", ["race", "watch"])
def test_an_old_refused_token_shows_its_round_everywhere(drive, settled, layout) -> None:
    def use(page):
        page.evaluate("(l) => board.setLayout(l)", layout)
        page.evaluate(LOAD, json.dumps(OLD))
        page.evaluate("board.board.edge(1)")
        settled(page)
        cell = page.locator(".lane[data-lane='1'] .cells [data-cell] .t").first
        n = int(
            page.evaluate("document.querySelector(\".lane[data-lane='1'] .cells [data-cell]\").dataset.cell")
        )
        cell.dispatch_event("click")
        settled(page)
        assert f"ound {n + 1}" in page.text_content(".p-insp h2")
        page.evaluate("board.setLayout('watch')")
        settled(page)
        assert page.text_content(".transport .where b").startswith(f"Round {n + 1} / ")

    drive(use)


def test_the_rail_counts_a_refused_token_as_soon_as_it_lies_there(drive, settled) -> None:
    first = next(
        r["round"] for r in OLD if r["type"] == "judge" and r["lane"] == 1 and r["verdict"] == "rejected"
    )

    def use(page):
        page.evaluate("board.setLayout('watch')")
        page.evaluate(LOAD, json.dumps(OLD))
        for phase, refused in ((2, "0"), (3, "1"), (4, "1")):
            page.evaluate("([round, phase]) => board.goto({ lane: 1, round, phase })", [first, phase])
            settled(page)
            assert TEXTS["rail.lost"].split(",")[0].format(rejected=refused) in page.text_content(
                ".lane[data-lane='1'] .rail .cap"
            ), phase

    drive(use)


@pytest.mark.parametrize("layout", ["race", "watch"])
def test_a_busy_machine_is_said_and_no_figure_is_struck_out(drive, settled, layout) -> None:
    told = sample.interleaved(NEW)
    told.insert(len(told) // 2, {"type": "check", "seq": None, "lane": 1, "kind": "busy", "detail": {}})

    def use(page):
        page.evaluate("(l) => board.setLayout(l)", layout)
        for number, upto in enumerate((len(told) * 2 // 3, len(told)), 5):
            page.evaluate(
                "(v) => board.push(v)",
                frame(number, told[:upto], **({"new": True, "run": "a"} if number == 5 else {"snap": True})),
            )
            settled(page)
            said = page.evaluate("SpecViz.timing.busySentence(board.board.list())")
            short = page.evaluate("SpecViz.timing.busyWords(board.board.list())")
            assert said and said in page.text_content(".notice .pop")
            assert short and short == page.inner_text(".notice .busy")
            lines = page.evaluate(
                "[...document.querySelectorAll('.pfig .speed, .rtable td:nth-child(2)')].filter((e) => e.checkVisibility() && e.textContent).map((e) => getComputedStyle(e).textDecorationLine)"
            )
            assert len(lines) > 1 and set(lines) == {"none"}

    drive(use)


@pytest.mark.parametrize("layout", ["race", "watch"])
@pytest.mark.parametrize(
    "copied, said", [(12, "12 (20 %) copied from your earlier answers"), (0, ""), (62, ""), ("12", "")]
)
def test_what_was_copied_from_earlier_answers_is_said_with_its_share(
    drive, settled, layout, copied, said
) -> None:
    """Of 61 tokens; a count that cannot be, or is no number, is not believed."""
    told = [
        r | {"totals": r["totals"] | {"remembered": copied}} if r["type"] == "done" and r["lane"] == 1 else r
        for r in NEW
    ]

    def use(page):
        page.evaluate("(l) => board.setLayout(l)", layout)
        page.evaluate(LOAD, json.dumps(told))
        page.evaluate("board.board.focusLane(1)")
        page.evaluate("board.board.edge(1)")
        settled(page)
        shown = page.evaluate(
            "[...document.querySelectorAll('.lane[data-lane=\"1\"] .own')].map((e) => e.textContent)"
        )
        assert [x.removeprefix(", ") for x in shown] == [said]
        beside = page.evaluate(
            "document.querySelector('.notice .say').textContent"
        )  # in sight in Race, too, where texts are folded
        assert (
            TEXTS["notice.remembered"].format(copied=12, tokens=61, title="Speculative decoding") in beside
        ) == bool(said)

    drive(use, size=(1400, 300))
