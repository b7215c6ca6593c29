"""A race: several methods on one prompt, interleaved round by round, each with its own clock; optionally
repeated for timing. Each run is a "lane"."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from ..core import Method
from ..methods import catalogue
from ..trace.events import Event, Finished
from .machine import Machine
from .request import SessionError, read_integer
from .session import Session
from .single_run import Run
from .turns import shuffled_turns

MOST_REPEATS = 20  # repeats of a race
WARM_TOKENS = 12  # tokens of the warm-up


def race(
    sessions: Sequence[Session],
    prompt: str | list[dict[str, str]],
    max_new_tokens: Any = None,
    stop: Sequence[str] | None = None,
    *,
    repeats: Any = 1,
    machine: Machine | None = None,
    **options: Any,
) -> Generator[tuple[int, Event | None]]:
    """Run several methods on one prompt; yield (lane, event), where the lane is the index of the session.
    Lanes are interleaved, one whole round at a time.

    The next round is that of the lane with the least time on its engine clock, so all lanes progress as if
    in parallel, but never compute at the same time. A lane that fails ends with Failed; the others
    continue. Keywords as in ``Session.run``.

    repeats: if above 1, each lane is warmed up by a short run, and after the race it is run again in full
    without events, in shuffled order; (lane, None) marks the beginning of such a run. The tokens and
    seconds of all these runs are ``repeats`` in the totals of each lane's Finished: [{tokens, seconds,
    replaced}, ...], where ``seconds`` hold the lane's median for the ``replaced`` passes that other processes
    interrupted (trace/speed.py). These runs do not see what the race stored in a visitor's memory. machine:
    watches the repeats, and chooses the number of threads anew where passes turn slow.
    """
    times = read_integer("repeats", repeats, 1, MOST_REPEATS)
    if not sessions or not all(isinstance(session, Session) for session in sessions):
        raise SessionError("A race is a list of one session or more.", "race.empty")

    def open_run(session: Session, length: Any, **options: Any) -> Run:
        return session.open(prompt, length, stop, **options)

    runs = [open_run(session, max_new_tokens, **options) for session in sessions]
    plain = next((run.run_id for run in runs if is_baseline(run.session.method)), None)
    for run in runs:
        run.baseline_run_id = plain if run.run_id != plain else None
    if times == 1:
        return _take_turns(runs)

    before = {
        id(memory): memory.snapshot()
        for memory in (session.memory for session in sessions)
        if memory is not None
    }

    def again(lane: int, length: int) -> Run:
        """Return a new run with a copy of the visitor's memory as it was when the race began."""
        session = copy(sessions[lane])
        if session.memory is not None:
            session.memory = before[id(session.memory)].copy()
        return open_run(session, length, **options | {"deadline": runs[lane].time_limit})

    return _measured(runs, times, again, machine)


def _measured(
    runs: list[Run], times: int, again: Callable[[int, int], Run], machine: Machine | None
) -> Generator[tuple[int, Event | None]]:
    """Run a race, then repeat the lanes that finished; again(lane, length) returns a new run."""
    ends: dict[int, Finished] = {}
    took: dict[int, list[dict[str, Any]]] = {}
    for lane in range(len(runs)):
        _figures(again(lane, WARM_TOKENS), None)
    for lane, event in _take_turns(runs):
        if isinstance(event, Finished):
            ends[lane], took[lane] = event, []
        else:
            yield lane, event
    for lane in (lane for turn in shuffled_turns(ends, times - 1, len(runs)) for lane in turn):
        if runs[lane].interrupted():
            break
        yield lane, None
        figures = _figures(again(lane, runs[lane].wanted), machine)
        if (
            figures and figures["tokens"] == ends[lane].totals["tokens"]
        ):  # a run that was cut short is not the same run
            took[lane].append(figures)
    yield from (
        (lane, replace(end, totals={**end.totals, "repeats": took[lane]})) for lane, end in ends.items()
    )


def _figures(run: Run, machine: Machine | None) -> dict[str, Any] | None:
    """Run to the end, discarding the events. Return {tokens, seconds after the prefill, replaced}; None if the
    run failed."""
    finished = False
    for event in run.events:
        finished |= isinstance(event, Finished)
        if machine is not None:
            machine.observe(run.run_id, event)
    return {**run.totals.run_time._asdict(), "replaced": run.totals.steady.replaced} if finished else None


def _take_turns(runs: list[Run]) -> Generator[tuple[int, Event]]:
    try:
        for lane, run in enumerate(runs):
            yield lane, next(run.events)
        while waiting := [(run.clock(), lane) for lane, run in enumerate(runs) if not run.over]:
            lane = min(waiting)[1]
            yield from ((lane, event) for event in runs[lane].turn())
    finally:
        for run in runs:
            run.events.close()


def is_baseline(method: Method) -> bool:
    """Return whether a method is plain decoding, against which speed-ups are measured."""
    return method.key == next(iter(catalogue()))
