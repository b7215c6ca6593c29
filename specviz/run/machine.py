"""How quick this machine is just now: what a pass of the target costs, how many threads serve it best, and whether something else
takes the processor away while a run is under way. A time that was measured on a busy machine says nothing about a method."""
from __future__ import annotations

import time
from typing import Any

import torch

from ..core import DraftTree
from ..trace.events import Checked, Drafted, Event, Finished, Verified
from ..zoo.device import fit_threads, use_cores

PASSES, PATIENCE = 5, 0.2  # passes that are timed, and seconds after which no more are: a large model has others to serve
CONTEXT = 64  # tokens before the pass that is timed
SLOW = 3.0  # times what a pass costs here at rest
ROW = 0.1  # of a pass of one row, that each further row may cost
LOST = 10.0  # passes' worth of time lost by slow ones, that is told at once
PART = 0.05  # of a lane's passes lost by slow ones, that is told at its end
STREAK, REST = 3, 2.0  # slow passes on end before threads are chosen anew, and seconds between two choices


def pass_seconds(loaded: Any) -> float:
    """Mean seconds of a target's pass of one row, just now; the first one is not counted."""
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
    """Watches the passes of one run. threads: how many compute; now: seconds of a pass when it was made; usual: the least it has
    cost since the model was loaded."""

    def __init__(self, loaded: Any):
        self._loaded, self._lanes = loaded, {}
        self._streak, self._chosen = 0, time.monotonic()
        self.threads, self.now = self._fit()
        self.usual = loaded.pass_seconds = min(self.now, getattr(loaded, "pass_seconds", None) or self.now)

    def told(self) -> dict[str, Any]:
        """For the header's ``env``."""
        return {"threads": self.threads, "pass_seconds": self.now, "usual_pass_seconds": self.usual}

    def begun(self) -> list[Checked]:
        """What a lane is told when it begins."""
        return [self._busy(0, 0, self.now - self.usual)] if self.now > SLOW * self.usual else []

    def see(self, lane: int, event: Event) -> list[Checked]:
        """What there is to tell after an event of a lane. Called between rounds, where the engine's clock stands still."""
        mine = self._lanes.setdefault(lane, _Lane())
        if isinstance(event, Drafted):
            mine.drafted = event.t1
        elif isinstance(event, Verified) and event.t0 >= mine.drafted:  # one that ran beside its draft shares the cores with it
            return self._passed(mine, event.t1 - event.t0, self.usual * (1 + ROW * (event.rows - 1)))
        elif isinstance(event, Finished) and mine.lost > PART * mine.seconds:
            return self._tell(mine)
        return []

    def _passed(self, mine: _Lane, took: float, usual: float) -> list[Checked]:
        mine.passes, mine.seconds = mine.passes + 1, mine.seconds + took
        slow = took > SLOW * usual
        self._streak = self._streak + 1 if slow else 0
        out = []
        if slow:
            mine.slow, mine.lost = mine.slow + 1, mine.lost + took - usual
            if mine.lost > LOST * self.usual:
                out += self._tell(mine)
        if self._streak >= STREAK and time.monotonic() > self._chosen + REST:
            out += self._choose()
        return out

    def _choose(self) -> list[Checked]:
        before = self.threads
        self.threads, self.now = self._fit()
        self._streak, self._chosen = 0, time.monotonic()
        return [Checked("threads", {"threads": self.threads, "before": before})] if before != self.threads else []

    def _fit(self) -> tuple[int, float]:
        """How many threads compute from now on, and seconds of a pass: those that fit best, or where no clock may decide always as many."""
        if not getattr(self._loaded, "deterministic", False):
            return fit_threads(lambda: pass_seconds(self._loaded))
        use_cores(True)
        return torch.get_num_threads(), pass_seconds(self._loaded)

    def _tell(self, mine: _Lane) -> list[Checked]:
        told, mine.told = mine.told, True
        return [] if told else [self._busy(mine.slow, mine.passes, mine.lost)]

    def _busy(self, slow: int, passes: int, lost: float) -> Checked:
        return Checked("busy", {"slow": slow, "passes": passes, "lost_seconds": lost, "usual_pass_seconds": self.usual})


class _Lane:
    def __init__(self):
        self.passes, self.slow, self.seconds, self.lost, self.drafted, self.told = 0, 0, 0.0, 0.0, 0.0, False
