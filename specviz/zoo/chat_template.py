"""Render a model's chat template within bounds. transformers runs it in a sandbox without access to Python's
objects, but lets it loop for ever and write without end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 2.0  # of a rendering; usual ones take milliseconds
MOST_CHARACTERS = 4_000_000  # of a rendered conversation


class TemplateBound(ValueError):
    """A chat template takes too long or writes too much."""


def render(tokenizer: Any, messages: Any, **options: Any) -> str:
    """Return a conversation as the tokenizer's chat template writes it. Raises TemplateBound, and whatever the
    template raises."""
    with _ended_after(SECONDS):
        shown = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    if len(shown) > MOST_CHARACTERS:
        raise TemplateBound(f"it writes more than {MOST_CHARACTERS:,} characters.")
    return shown


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Context manager: raise TemplateBound in this thread when Python code in it takes longer. A debugger's or
    a coverage tool's tracing is left alone: then there is no bound."""
    if sys.gettrace() is not None:
        yield
        return
    until = time.monotonic() + seconds

    def trace(frame: Any, event: str, _: Any) -> Any:
        if event == "line" and time.monotonic() > until:
            raise TemplateBound(f"it takes longer than {seconds:.0f} s.")
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
