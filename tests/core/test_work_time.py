"""Seconds of work: waiting for a core that others hold does not count, sleeping does."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from specviz.core import work_time
from specviz.core.state import Clock


class Statistics:
    """A thread's statistics: how long it has waited, in nanoseconds, at each reading."""

    def __init__(self, readings: list[int]):
        self.readings = readings

    def waited(self) -> int:
        """Return the next reading; the last one stays."""
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


@pytest.fixture
def thread(monkeypatch):
    """The statistics and the clock of this thread, to be set."""
    mine = Statistics([0])
    now = [100.0]
    monkeypatch.setattr(work_time._threads, "mine", mine, raising=False)
    monkeypatch.setattr(work_time.time, "perf_counter", lambda: now[0])
    return mine, now


def test_waiting_for_a_core_does_not_count(thread):
    mine, now = thread
    clock = Clock()
    now[0] += 3.0
    mine.readings[:] = [2_000_000_000]
    assert clock.now() == pytest.approx(1.0)
    now[0] += 0.5  # without waiting: sleeping, or working
    assert clock.now() == pytest.approx(1.5)


def test_a_wait_between_the_two_readings_is_read_again(thread):
    mine, now = thread
    began = work_time.work_seconds()
    mine.readings[:] = [0, 10_000_000, 10_000_000]  # the thread lost its core after the first reading
    assert work_time.work_seconds() - began == pytest.approx(
        -0.01
    )  # the clock here stands still: counted once
    assert mine.readings == [10_000_000]


def test_a_paused_clock_may_be_resumed_on_another_thread():
    clock = Clock()
    clock.pause()
    before = clock.now()

    def resume() -> None:
        clock.resume()
        clock.pause()

    other = threading.Thread(target=resume)
    other.start()
    other.join()
    assert 0.0 <= clock.now() - before < 1.0


def test_another_thread_reads_the_clock_of_the_one_that_began_it(thread):
    mine, now = thread
    clock = Clock()
    now[0] += 3.0
    mine.readings[:] = [2_000_000_000]
    seen: list[float] = []
    other = threading.Thread(target=lambda: seen.append(clock.now()))
    other.start()
    other.join()
    assert seen == [pytest.approx(1.0)] and clock.now() == seen[0]


def test_work_beside_is_timed_by_its_own_thread(thread, monkeypatch):
    mine, now = thread
    clock = Clock()
    now[0] += 1.0
    seen: list[float] = []

    def work() -> None:
        its = Statistics([0])
        monkeypatch.setattr(work_time._threads, "mine", its, raising=False)
        beside = clock.beside()
        seen.append(beside.now())
        mine.readings[:] = [700_000_000]  # the other thread has waited: what this one reads stays
        seen.append(beside.now())
        its.readings[:] = [250_000_000]
        now[0] += 1.0
        seen.append(beside.now())
        beside.pause()

    other = threading.Thread(target=work)
    other.start()
    other.join()
    assert seen == [pytest.approx(1.0), pytest.approx(1.0), pytest.approx(1.75)]
    assert clock.now() == pytest.approx(1.3), "its pause does not stop this one"


def test_the_statistics_of_a_thread_are_its_own_and_closed_with_it():
    if not Path(work_time._STATISTICS).exists():
        pytest.skip("this system does not count a thread's waiting")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        thread = threading.Thread(target=work_time.work_seconds)
        thread.start()
        thread.join()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1  # this thread's own may be new
    assert work_time.work_seconds() <= time.perf_counter() + 1e-3


def test_without_statistics_it_is_the_clock(monkeypatch):
    monkeypatch.setattr(work_time, "_STATISTICS", "/proc/no-such-file")
    monkeypatch.setattr(work_time, "_threads", threading.local())
    before, seconds, after = time.perf_counter(), work_time.work_seconds(), time.perf_counter()
    assert before <= seconds <= after
