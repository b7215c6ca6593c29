"""A time limit counts a run's own work: what other processes and other threads took does not shorten it."""

from __future__ import annotations

import threading

import pytest

from specviz.run import Session, race
from specviz.run.request import SessionError
from specviz.run.time_limit import TimeLimit, read_time_limit
from specviz.trace.events import Committed, Finished

from .fakes import FakeLoaded

PROMPT = "one two three"


class Clocks:
    """Two clocks that the test moves."""

    def __init__(self):
        self.clock = self.work = 0.0

    def pass_by(self, clock: float, work: float) -> None:
        self.clock += clock
        self.work += work

    def limit(self, seconds: float, patience: float = 2.0) -> TimeLimit:
        return TimeLimit(seconds, patience, lambda: self.clock, lambda: self.work)


def test_time_of_other_processes_does_not_count():
    clocks = Clocks()
    limit = clocks.limit(10)
    clocks.pass_by(12, 6)
    assert limit.left() == pytest.approx(4) and not limit.reached()
    clocks.pass_by(5, 4)
    assert limit.reached()


def test_the_clock_ends_a_run_that_only_waits():
    clocks = Clocks()
    limit = clocks.limit(10)
    clocks.pass_by(19, 0)
    assert not limit.reached()
    clocks.pass_by(1, 0)
    assert limit.reached()


def test_a_patience_of_one_is_the_clock():
    clocks = Clocks()
    limit = clocks.limit(10, 1.0)
    clocks.pass_by(10, 1)
    assert limit.reached()


def test_another_thread_cannot_hide_time():
    """The processor time of two threads cannot be compared, so the time between two asks counts whole."""
    clocks = Clocks()
    limit = clocks.limit(10)
    clocks.pass_by(4, 1000)
    thread = threading.Thread(target=limit.left)
    thread.start()
    thread.join()
    assert limit.left() == pytest.approx(6)


def test_shares_are_of_what_is_left():
    clocks = Clocks()
    limit = clocks.limit(10)
    clocks.pass_by(4, 4)
    share = limit.share(3)
    assert share.seconds == pytest.approx(2) and share.patience == limit.patience
    clocks.pass_by(1, 1)
    assert share.left() == pytest.approx(1)


def test_a_deadline_is_seconds_or_a_limit():
    limit = TimeLimit(3)
    assert read_time_limit(None) is None and read_time_limit(limit) is limit
    plain = read_time_limit(5)
    assert plain is not None and (plain.seconds, plain.patience) == (5, 1)
    for wrong in (-1, "soon", True, float("nan")):
        with pytest.raises(SessionError):
            read_time_limit(wrong)


def _lengths(work_per_event: float) -> tuple[list[str], list[int]]:
    """Race two lanes within ten seconds of work, where each event takes a second on the clock."""
    clocks = Clocks()
    limit = clocks.limit(10, 100.0)
    sessions = [Session(FakeLoaded(), key) for key in ("autoregressive", "speculative")]
    ends, tokens = ["", ""], [0, 0]
    for lane, event in race(sessions, PROMPT, 40, deadline=limit):
        clocks.pass_by(1, work_per_event)
        if isinstance(event, Committed):
            tokens[lane] += len(event.tokens)
        if isinstance(event, Finished):
            ends[lane] = event.finish
    return ends, tokens


def test_a_race_beside_other_work_is_as_long_as_one_alone():
    assert _lengths(0.01)[0] == ["length", "length"]
    ends, tokens = _lengths(1.0)
    assert ends == ["deadline", "deadline"] and max(tokens) < 40


def test_repeats_share_the_limit_of_the_race():
    clocks = Clocks()
    limit = clocks.limit(1000, 2.0)
    sessions = [Session(FakeLoaded(), key) for key in ("autoregressive", "speculative")]
    repeats = 0
    for _, event in race(sessions, PROMPT, 8, deadline=limit, repeats=5):
        if event is None:
            repeats += 1
            clocks.pass_by(400, 400)
    assert repeats == 3
