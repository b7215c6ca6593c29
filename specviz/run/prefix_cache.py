"""Reuse of the KV cache between turns of a conversation: the next run's prefill computes only the tokens that are new."""
from __future__ import annotations

import threading
from typing import Any

from ..core import Target

EXACT = ("exact", "greedy only")  # a method whose cache holds the target's own keys and values


class PrefixCache:
    """Keeps the target of a conversation's last run with its KV cache. One conversation, one run at a time: a second run meanwhile
    starts with an empty cache. Call ``close`` when the conversation ends.

    Only the target's cache is kept; draft models and heads read the prompt anew. Runs of methods that are not exact neither use nor
    fill it, because they may leave approximate keys and values.
    """

    def __init__(self):
        self._lock, self._model, self._target = threading.Lock(), "", None

    def take(self, kit: Any, name: str, exactness: str) -> None:
        """Give the kept target to a run's kit, if it is of the same model."""
        with self._lock:
            target, self._target = self._target, None
            model = self._model
        if target is None:
            return
        if model != name or exactness not in EXACT:
            target.close()
            return
        kit.opened[0].close()
        kit.opened[0] = kit.target = target

    def keep(self, kit: Any, name: str, exactness: str) -> None:
        """Take the target out of a kit whose run has ended, before the kit is closed."""
        if exactness not in EXACT:
            return
        with self._lock:
            before, self._target, self._model = self._target, kit.opened.pop(0), name
        if before is not None:
            before.close()

    @property
    def target(self) -> Target | None:
        """The kept target, if any."""
        return self._target

    def close(self) -> None:
        """Free the KV cache."""
        with self._lock:
            target, self._target = self._target, None
        if target is not None:
            target.close()
