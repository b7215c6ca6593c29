"""What the page says of a live engine: under Stop, at the time limit, with repeats, for a follow-up, after
New chat."""

from __future__ import annotations

import re
import threading
from collections import Counter

import pytest

from specviz.engine import Engine, stream
from specviz.engine.messages import TEXTS as PAGE
from specviz.run import machine

from ..message_codes import viewer_texts
from .conftest import Server
from .test_page import begin, finish, open_fields, run, state

TEXTS = viewer_texts()

LENGTH = 40  # tokens that a lane writes
HEADLINE = "document.querySelector('#board .headline').textContent"


class Gated(Engine):
    """The real one, told when to wait: once every lane has written in so many rounds (``after``), it goes
    on only when it is let or stopped. Which lane comes next is the clock's choice, so a count of all their
    events would not do.

    seconds: what each lane's runs took, the race and its repeats, in place of what a machine measures that
    runs other tests, too."""

    def __init__(self):
        super().__init__()
        self.after = None
        self.waits = threading.Event()
        self.let = threading.Event()
        self.seconds: list[list[float]] | None = None
        self.new: dict[int, int] = {}

    def run(self, ask, cancel, seconds):
        self.waits.clear()
        self.let.clear()
        rounds = Counter(range(len(ask.lanes)))
        for batch in super().run(ask, cancel, seconds):
            if self.seconds and isinstance(batch, list):
                batch = [
                    self.timed(x) for x in batch if not (isinstance(x, dict) and x.get("kind") == "busy")
                ]
            yield batch
            rounds.update(
                record["lane"] for record in batch if isinstance(record, dict) and record["type"] == "text"
            )
            while (
                self.after is not None
                and min(rounds.values()) > self.after
                and not (cancel.is_set() or self.let.wait(0.01))
            ):
                self.waits.set()

    def timed(self, record):
        if not isinstance(record, dict) or record["type"] not in ("commit", "timing", "done"):
            return record
        if record["type"] == "commit":
            self.new[record["lane"]] = record["n_new"]
            return record
        if record["type"] == "timing":  # in a part of a round that is never replaced
            parts = dict.fromkeys((name for name in record if name.endswith("_ns")), 0)
            share = self.seconds[record["lane"]][0] * self.new[record["lane"]] / LENGTH
            return {**record, **parts, "other_ns": round(share * 1e9)}
        own, *again = self.seconds[record["lane"]]
        totals = record["totals"]
        tokens = totals["tokens"]
        return {
            **record,
            "totals": {
                **totals,
                "seconds": own,
                "repeats": [{"tokens": tokens, "seconds": s} for s in again],
            },
        }


@pytest.fixture
def live(visit, at_home, monkeypatch):
    """A page on the real engine with tiny models; how quick this machine is just now is another test's
    business."""
    monkeypatch.setattr(machine, "SLOW", 1e9)
    engine = Gated()
    server = Server(engine)

    def open_page():
        page = visit(url=server.url)
        open_fields(page)
        page.fill("#length input", str(LENGTH))
        return page, engine

    yield open_page
    server.close()


def says(page, start):
    page.wait_for_function(f"(start) => {HEADLINE}.startsWith(start)", arg=start)
    return page.inner_text("#board .headline")


def held(page, engine):
    """A run that waits in the middle; what stands on the board is of it alone."""
    begin(page)
    assert engine.waits.wait(30)
    state(page, "live")
    said = says(page, "So far: ")
    assert (
        TEXTS["headline.fast"] not in said and page.inner_text("#board .same") == TEXTS["headline.checking"]
    )


@pytest.mark.thorough
def test_a_live_run_that_is_stopped_or_out_of_time_agrees_as_far_as_it_came(live, monkeypatch):
    page, engine = live()
    engine.after = 4
    held(page, engine)
    page.click("#stop")
    finish(page, "stopped")
    cut_short(page)
    page, _ = live()  # the same question anew: an answer to a follow-up may be short
    monkeypatch.setattr(stream, "RUN_SECONDS", 1.5)
    held(page, engine)
    page.wait_for_timeout(3100)  # it waits, so time on the clock ends it: twice the limit
    engine.let.set()
    finish(page, "stopped")
    assert PAGE["run.deadline"].rpartition("seconds")[2] in page.inner_text("#board .notice")
    cut_short(page)


def cut_short(page):
    said = says(page, "Stopped ")
    n, whole, passes, plain, part = re.fullmatch(
        r"Stopped after (\d+) tokens?(: the same so far)?, in (\d+) pass(?:es)? instead of (\d+)"
        r"(?:: the same for the first (\d+), as far as plain decoding came)?\.",
        said,
    ).groups()
    assert bool(whole) != bool(part) and (whole or 0 < int(part) < int(n)), (
        said
    )  # which lane is ahead is the clock's choice
    assert 0 < int(passes) <= int(n) == int(plain) < 40 and re.fullmatch(
        r"same text so far: (\d+ of \d+ )?checked", page.inner_text("#board .same")
    )
    page.wait_for_function(
        "document.querySelector('#board .parts').textContent.includes('agrees with plain decoding in all that both wrote') || document.querySelector('#board .parts').hidden"
    )
    assert not page.is_visible("#lane")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("own", "slower"),
    [
        (0.5, TEXTS["headline.slower"].format(value="0.50")),
        (0.9, TEXTS["headline.slower.about"].format(value="0.50", low="0.28", high="0.50")),
    ],
    ids=["quiet", "disturbed"],
)
def test_a_live_run_with_repeats_has_one_set_of_figures(live, own, slower):
    """The first run of the first lane may have been disturbed: the medians stay, the interval is wider."""
    page, engine = live()
    engine.seconds = [[own, 0.5, 0.4], [1.0, 1.0, 1.0], [0.25, 0.25, 0.2]]
    page.fill("#repeats input", "3")
    run(page)
    said = says(page, "The same 40 tokens in ")
    assert said.endswith(slower + TEXTS["headline.median"].format(runs=3) + "."), said
    shown = page.inner_text(".prow.open .speed")
    page.click("#tab-race")
    page.wait_for_function(
        "document.querySelectorAll('.prow .speed').length >= 3 && document.querySelector('.won:not(.wait)')"
    )
    table = page.evaluate(
        "[...document.querySelectorAll('.rtable tbody tr')].map((r) => r.cells[1].textContent)"
    )
    assert (
        page.evaluate(
            "[...document.querySelectorAll('.prow:not(.open) .speed')].map((e) => e.textContent.split(' ')[0])"
        )
        == table
    )
    won = page.inner_text(".won")
    speeds = ["80.0", "40.0", "160.0"]
    assert table == speeds and shown.split(" ")[0] == speeds[0]
    assert " in 3 runs each" in won and speeds[0] in won and speeds[2] in won


@pytest.mark.thorough
def test_after_a_new_chat_nothing_of_the_old_run_stands_and_the_next_one_fills_it(live):
    page, engine = live()
    run(page, "one")
    run(page, "and two?")
    assert says(page, "The same ") and page.get_attribute(".pg-chat", "data-turns") == "1"
    page.click("#new-chat")
    state(page, "idle")
    assert (
        says(page, "Several tokens can arrive")
        and not page.is_visible("#board .same")
        and page.inner_text(".p-rate .chart") == TEXTS["chart.empty"]
    )
    assert (
        not page.is_visible("#board .metrics")
        and not page.is_visible(".pg-chat")
        and not page.locator("#board .prow:not(.open)").count()
    )
    assert not re.search(r"\d", "".join(page.locator("#board .passes .prow").all_inner_texts()))
    engine.after = 4
    held(page, engine)
    page.wait_for_function(
        "document.querySelector('.p-insp .body').textContent.length > 20 && document.querySelector('.p-rate .chart').textContent !== 'Nothing yet.'"
    )
    engine.let.set()
    finish(page)
    assert says(page, "The same 40 tokens in ")
