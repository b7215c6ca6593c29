"""Timed runs of the Lab's measurements. Each run is monitored as in a race (run/machine.py). A run during
which other processes used the CPU is called disturbed; its times are left out if there are undisturbed
runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ..run.machine import Machine
from ..run.result import collect
from ..trace.metrics import Totals

if TYPE_CHECKING:
    from ..run.session import Session
    from ..zoo.pair import Loaded


class TimedRun(NamedTuple):
    """The totals of a run. disturbed: other processes took the CPU during it."""

    totals: Totals
    disturbed: bool

    @property
    def speed(self) -> float | None:
        """Tokens per second after the prefill; None for a run that took no measurable time."""
        return self.totals.tokens / self.totals.seconds if self.totals.seconds else None


class TimedRuns:
    """Runs methods one after another on a monitored machine, for measurements."""

    def __init__(self, loaded: Loaded):
        self._machine = Machine(loaded)
        self._slow = bool(self._machine.start_events())

    def run(self, session: Session, prompt: str, length: int) -> TimedRun:
        """Generate an answer of ``length`` tokens; return the timed run. Raises RunFailed."""
        result = collect(self._machine.watch(session.run(prompt, length)))
        return TimedRun(result.totals, self._slow or result.busy)


def undisturbed(runs: Iterable[TimedRun]) -> list[TimedRun]:
    """Return the runs whose times count: the undisturbed ones, or all if every run was disturbed."""
    runs = list(runs)
    return [run for run in runs if not run.disturbed] or runs


def all_disturbed(runs: Iterable[TimedRun]) -> bool:
    """Return whether all runs were disturbed, so that no time of them counts. False without runs."""
    flags = [run.disturbed for run in runs]
    return bool(flags) and all(flags)


def counts(runs: Iterable[TimedRun]) -> dict[str, int]:
    """Return {runs: number of runs, disturbed: number of disturbed ones}."""
    flags = [run.disturbed for run in runs]
    return {"runs": len(flags), "disturbed": sum(flags)}
