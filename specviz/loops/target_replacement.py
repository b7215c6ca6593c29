"""Run the ordinary loop on a fine-tuned copy of the target instead of the target (CLLM, Kou et al.
2403.00835)."""

from __future__ import annotations

from collections.abc import Generator

from ..core import Parts, State, Target
from ..trace.events import Event
from .speculate import speculate


def replace_target(parts: Parts, target: Target, state: State) -> Generator[Event]:
    """Run the ordinary loop on helpers["writer"], a Target. The target itself is not used, and nothing is
    verified against it."""
    writer = parts.helpers["writer"]
    try:
        yield from speculate(parts, writer, state)
    finally:
        writer.close()
