"""Reuse the KV cache between turns of a conversation: the prefill of the next run computes only the new
tokens."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ..core import CapableTarget, common_prefix_length

LEAST = 8  # common tokens from which on a prompt continues a conversation
EXACT = ("exact", "greedy only")  # a method whose cache holds the target's own keys and values


class PrefixCache:
    """Keeps the target of a conversation's last run, with its KV cache, for the next run. Only one run at a
    time can use it; a second run meanwhile starts with an empty cache. Call ``close`` when the conversation
    ends.

    Only the target's cache is kept; draft models and heads process the prompt again. Runs of methods that
    are not exact neither use nor fill it, because they may leave approximate keys and values.
    """

    def __init__(self):
        self._lock, self._model = threading.Lock(), ""
        self._target: CapableTarget | None = None
        self.prompt = 0  # tokens of the run that filled it, without its answer

    def take(self, kit: Any, name: str, exactness: str) -> None:
        """Move the kept target into a run's kit, if it belongs to the same model and read the same picture;
        else free it. name: of the model."""
        with self._lock:
            target, self._target = self._target, None
            model = self._model
        if target is None:
            return
        if model != name or exactness not in EXACT or target.prefix_id != kit.target.prefix_id:
            target.close()
            return
        kit.opened[0].close()
        kit.opened[0] = kit.target = target

    def keep(self, kit: Any, name: str, exactness: str, prompt: int = 0) -> None:
        """Move the target of a kit whose run has ended into this cache, before the kit is closed. name: of
        the model; prompt: number of tokens of the run's prompt."""
        if exactness not in EXACT:
            return
        with self._lock:
            before = self._target
            self._target = kit.opened.pop(0)
            self._model = name
            self.prompt = prompt
        if before is not None:
            before.close()

    @property
    def target(self) -> CapableTarget | None:
        """The kept target, or None."""
        return self._target

    def close(self) -> None:
        """Free the KV cache."""
        with self._lock:
            target, self._target = self._target, None
        if target is not None:
            target.close()


class PrefixPool:
    """The ``most`` most recently used prefix caches of conversations. A conversation is identified by its
    owner and its text."""

    def __init__(self, most: int = 4):
        self.most, self._lock = most, threading.Lock()
        self._caches: list[tuple[str, PrefixCache]] = []

    def lease(self, owner: str, tokens: Sequence[int], whole: bool = False) -> PrefixCache:
        """Return the owner's cache that shares the longest prefix with the prompt tokens; a new one if none
        shares at least LEAST tokens. whole: only a cache whose whole prompt is continued, so that two people
        who count as one owner cannot learn from the reuse how far a guess matches the other's prompt."""
        with self._lock:
            mine = [
                (cached_prefix_length(cache, tokens), cache)
                for other, cache in self._caches
                if other == owner
            ]
            mine = [(length, one) for length, one in mine if not whole or length >= one.prompt]
            length, cache = max(mine, key=lambda pair: pair[0], default=(0, None))
            cache = cache if cache is not None and length >= LEAST else PrefixCache()
            self._caches = [pair for pair in self._caches if pair[1] is not cache] + [(owner, cache)]
            old, self._caches = self._caches[: -self.most], self._caches[-self.most :]
        for _, one in old:
            one.close()
        return cache

    def close(self) -> None:
        """Free all caches."""
        with self._lock:
            old, self._caches = self._caches, []
        for _, one in old:
            one.close()


def cached_prefix_length(cache: PrefixCache, tokens: Sequence[int]) -> int:
    """Return how many leading tokens of a prompt are in a cache."""
    target = cache.target
    return 0 if target is None else common_prefix_length(target.cached_tokens, tokens)
