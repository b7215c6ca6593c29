"""Count the tokens of a run that were copied from earlier answers of the same visitor."""

from __future__ import annotations

from ..indexes.earlier_answers import ANSWERS
from ..trace.events import Committed, Drafted, Event


class CopiedTokens:
    """Counts the committed tokens of a run that were copied from earlier answers (``tokens``); ``fold``
    adds an event."""

    def __init__(self):
        self.tokens, self._copied = 0, frozenset()

    def fold(self, event: Event) -> None:
        """Add an event of the run."""
        if isinstance(event, Drafted):
            self._copied = frozenset(
                node["id"] for node in event.nodes if (node.get("src") or {}).get("source") in ANSWERS
            )
        elif isinstance(event, Committed):
            self.tokens += len(self._copied.intersection(event.path))
