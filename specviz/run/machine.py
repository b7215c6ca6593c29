"""Measure the machine: seconds of a target pass, the best number of threads, and whether other processes
use the CPU during a run. Times measured on a busy machine are not comparable."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..core import DraftTree
from ..core.threads import set_thread_count, thread_count
from ..trace.events import Checked, Drafted, Event, Finished, Started, Verified
from ..zoo.device import fit_threads, use_cores

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

PASSES = 5  # timed passes
PATIENCE = 0.2  # seconds after which timing stops
CONTEXT = 64  # tokens before the pass that is timed
SLOW = 3.0  # times the usual duration of a pass
ROW = 0.1  # allowed cost of each further token, as a share of a pass of one token
LOST = 10.0  # passes' worth of lost time that is reported at once
PART = 0.05  # share of a lane's time lost that is reported at its end
STREAK = 3  # consecutive slow passes before threads are chosen again
REST = 2.0  # seconds between two choices


def pass_seconds(loaded: Loaded) -> float:
    """Return the mean seconds of a target pass of one token; the first pass is not counted."""
    kit = loaded.kit()
    try:
        with torch.inference_mode():
            kit.target.sync([0] * min(CONTEXT, loaded.context // 2))
            first, took = _one(kit.target), []
            until = time.perf_counter() + PATIENCE
            while len(took) < PASSES and time.perf_counter() < until:
                took.append(_one(kit.target))
        return sum(took) / len(took) if took else first
    finally:
        kit.close()


def _one(target: Any) -> float:
    began = time.perf_counter()
    target.score(DraftTree()).logits[0, 0].item()
    return time.perf_counter() - began


class Machine:
    """Monitors the forward passes of one or several runs side by side (lanes). threads: number in use; now:
    seconds of a target pass of one token at the start of the run; usual: the shortest such time since the
    model was loaded."""

    def __init__(self, loaded: Loaded):
        self._loaded, self._lanes = loaded, {}
        self._streak, self._chosen = 0, time.monotonic()
        self.threads, self.now = self._fit()
        self.usual = loaded.pass_seconds = min(self.now, getattr(loaded, "pass_seconds", None) or self.now)

    def header_fields(self) -> dict[str, Any]:
        """Return the fields for ``env`` in the trace's header: threads, and seconds of a pass now and
        usually."""
        return {"threads": self.threads, "pass_seconds": self.now, "usual_pass_seconds": self.usual}

    def start_events(self) -> list[Checked]:
        """Return the check to emit at the beginning of a run: that the machine is busy, if a pass takes
        SLOW times as long as usual."""
        return [self._busy(0, 0, self.now - self.usual)] if self.now > SLOW * self.usual else []

    def watch(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events of a run, each as ``follow`` gives it."""
        lane = -1 - len(self._lanes)  # unlike the lanes of callers of follow and observe
        for event in events:
            yield from self.follow(lane, event)

    def follow(self, lane: Hashable, event: Event) -> list[Event]:
        """Return an event of a lane, a header with ``header_fields`` added to its ``env``, followed by the
        checks that it causes."""
        if isinstance(event, Started):
            return [
                replace(event, header=event.header | {"env": event.header["env"] | self.header_fields()}),
                *self.start_events(),
            ]
        return [event, *self.observe(lane, event)]

    def observe(self, lane: Hashable, event: Event) -> list[Checked]:
        """Return the checks to emit after an event of a lane (a value of its own for each run). Called
        between rounds, while the engine's clock is paused."""
        mine = self._lanes.setdefault(lane, _Lane())
        if isinstance(event, Drafted):
            mine.drafted = event.t1
        elif (
            isinstance(event, Verified) and event.t0 >= mine.drafted
        ):  # a pass in parallel with its draft shares the cores with it
            return self._passed(mine, event.t1 - event.t0, self.usual * (1 + ROW * (event.rows - 1)))
        elif isinstance(event, Finished) and mine.lost > PART * mine.seconds:
            return self._report(mine)
        return []

    def _passed(self, mine: _Lane, took: float, usual: float) -> list[Checked]:
        mine.passes, mine.seconds = mine.passes + 1, mine.seconds + took
        slow = took > SLOW * usual
        self._streak = self._streak + 1 if slow else 0
        out = []
        if slow:
            mine.slow, mine.lost = mine.slow + 1, mine.lost + took - usual
            if mine.lost > LOST * self.usual:
                out += self._report(mine)
        if self._streak >= STREAK and time.monotonic() > self._chosen + REST:
            out += self._choose()
        return out

    def _choose(self) -> list[Checked]:
        before = self.threads
        self.threads, self.now = self._fit()
        self._streak, self._chosen = 0, time.monotonic()
        return (
            [Checked("threads", {"threads": self.threads, "before": before})]
            if before != self.threads
            else []
        )

    def _fit(self) -> tuple[int, float]:
        """Choose the number of threads and measure a pass with it: the fastest number, or in deterministic
        runs always the same."""
        if not getattr(self._loaded, "deterministic", False):
            return fit_threads(lambda: pass_seconds(self._loaded), self._loaded.compiled)
        use_cores(True)
        set_thread_count(thread_count(), self._loaded.compiled)
        return thread_count(), pass_seconds(self._loaded)

    def _report(self, mine: _Lane) -> list[Checked]:
        reported, mine.reported = mine.reported, True
        return [] if reported else [self._busy(mine.slow, mine.passes, mine.lost)]

    def _busy(self, slow: int, passes: int, lost: float) -> Checked:
        return Checked(
            "busy", {"slow": slow, "passes": passes, "lost_seconds": lost, "usual_pass_seconds": self.usual}
        )


class _Lane:
    def __init__(self):
        self.passes = 0
        self.slow = 0
        self.seconds = 0.0
        self.lost = 0.0
        self.drafted = 0.0
        self.reported = False
