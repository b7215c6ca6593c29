"""Timed runs of the Lab's measurements, and the speed-ups over plain decoding that they give: the same
statistic as in a race (trace/speed.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..run.machine import Machine
from ..run.result import collect
from ..trace.events import Event
from ..trace.metrics import Totals
from ..trace.speed import LaneTimes, Speed, speedup

if TYPE_CHECKING:
    from ..run.session import Session
    from ..zoo.pair import Loaded


class TimedRun(NamedTuple):
    """The totals of a run."""

    totals: Totals

    @property
    def speed(self) -> float | None:
        """Tokens per second after the prefill; None for a run that took no measurable time."""
        return self.totals.metrics()["tokens_per_second"]


class TimedRuns:
    """Runs methods one after another, for measurements. The number of threads is chosen anew where passes turn
    slow, as in a race."""

    def __init__(self, loaded: Loaded):
        self._machine = Machine(loaded)

    def run(
        self,
        session: Session,
        prompt: str,
        length: int,
        watch: Callable[[Iterable[Event]], Iterable[Event]] = iter,
    ) -> TimedRun:
        """Generate an answer of ``length`` tokens; return the timed run. watch: sees the events, outside the
        engine's clock. Raises RunFailed."""
        return TimedRun(collect(watch(self._machine.watch(session.run(prompt, length)))).totals)


def lane_times(runs: Sequence[TimedRun]) -> LaneTimes:
    """Return the runs of one setting as a lane: the first one, and its repeats."""
    if not runs:
        return LaneTimes(())
    first, *others = (run.totals for run in runs)
    times = (run.run_time for run in others)
    return LaneTimes(
        tuple(first.timed_rounds),
        tuple(one for one in times if one.tokens and one.seconds > 0),
        first.metrics()["block_efficiency"],
    )


def compared(plain: Sequence[TimedRun], ours: Sequence[TimedRun]) -> Speed:
    """Return how many times as fast the runs of a setting were as those of plain decoding, turn by turn."""
    return speedup(lane_times(plain), lane_times(ours))


def counts(runs: Iterable[TimedRun]) -> dict[str, int]:
    """Return {replaced, passes}: the interrupted passes and drafts of these runs, and how many there are."""
    found = [run.totals.steady for run in runs]
    return {"replaced": sum(one.replaced for one in found), "passes": sum(one.of for one in found)}


def speed_fields(found: Speed) -> dict[str, Any]:
    """Return the fields of an answer: the speed-up and its interval, null where none is named."""
    return {
        "walltime_speedup": found.value if found.named else None,
        "speedup_low": found.low if found.named else None,
        "speedup_high": found.high if found.named else None,
        "named": found.named,
    }
