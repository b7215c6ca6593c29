"""Another model writes in the target's place, with the ordinary rounds: a target that was trained further (CLLM, Kou et al.
2403.00835)."""
from __future__ import annotations

from typing import Iterator

from ..core import Parts, State, Target
from ..trace.events import Event
from .speculate import speculate


def instead(parts: Parts, target: Target, state: State) -> Iterator[Event]:
    """helpers["writer"]: the model that writes, a Target. The target itself has no part in it, and nothing is checked against
    it."""
    writer = parts.helpers["writer"]
    try:
        yield from speculate(parts, writer, state)
    finally:
        writer.close()
