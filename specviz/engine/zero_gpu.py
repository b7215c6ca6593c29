"""Whether the accelerator is attached per call, and what that means for time limits."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..run.time_limit import TimeLimit


def on_zero_gpu() -> bool:
    """Return whether this machine attaches its accelerator per call (a ZeroGPU Space)."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "true") and find_spec("spaces") is not None


def time_limit(seconds: float) -> TimeLimit:
    """Return the limit of a visitor's turn: seconds of its own work. An accelerator that is attached per call
    is attached for seconds on the clock."""
    from ..run.time_limit import PATIENCE, TimeLimit

    return TimeLimit(seconds, 1.0 if on_zero_gpu() else PATIENCE)
