"""Keep the page's text and its configuration for a short time: gradio writes 1.5 MB anew for every request."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any

PATHS = ("/", "/config")
SECONDS = 30.0
KEPT = 8  # answers
HEADERS = (b"host", b"accept-encoding", b"x-forwarded-host", b"x-forwarded-proto", b"cookie")
LONGEST = 400  # characters of a key's part


class PageCache:
    """ASGI middleware that answers a GET of PATHS from memory for SECONDS. Answers differ by path, query and
    HEADERS. clock: another one for tests."""

    def __init__(self, app: Any, clock: Callable[[], float] = time.monotonic):
        self._app = app
        self._clock = clock
        self._under_way: dict[tuple, asyncio.Event] = {}
        self._kept: OrderedDict[tuple, tuple[float, list[MutableMapping[str, Any]]]] = OrderedDict()

    def has(self, scope: MutableMapping[str, Any]) -> bool:
        """Return whether a request is answered from memory."""
        found = self._kept.get(_key(scope) or ())
        return found is not None and self._clock() - found[0] < SECONDS

    async def __call__(self, scope: MutableMapping[str, Any], receive: Callable, send: Callable) -> None:
        key = _key(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        if self.has(scope):
            for message in self._kept[key][1]:
                await send({**message})
            return
        under_way = self._under_way.get(key)
        if under_way is not None:  # one answer for all that ask while it is written
            await under_way.wait()
            if self.has(scope):
                await self(scope, receive, send)
                return
        done = self._under_way[key] = asyncio.Event()
        messages: list[MutableMapping[str, Any]] = []

        async def keep(message: MutableMapping[str, Any]) -> None:
            messages.append({**message})

        try:
            await self._app(scope, receive, keep)
            self._keep(key, messages)
        finally:
            done.set()
            if self._under_way.get(key) is done:
                del self._under_way[key]
        for message in messages:  # a slow reader keeps nobody else waiting
            await send({**message})

    def _keep(self, key: tuple, messages: list[MutableMapping[str, Any]]) -> None:
        whole = messages and messages[0].get("status") == 200 and not messages[-1].get("more_body")
        if whole and not any(name.lower() == b"set-cookie" for name, _ in messages[0]["headers"]):
            self._kept[key] = self._clock(), messages
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)


def _key(scope: MutableMapping[str, Any]) -> tuple | None:
    """Return what an answer depends on; None for a request that is not kept."""
    path = scope.get("path", "").removeprefix(scope.get("root_path", "").rstrip("/")) or "/"
    if scope["type"] != "http" or scope["method"] != "GET" or path not in PATHS:
        return None
    headers = [(name, value) for name, value in scope["headers"] if name.lower() in HEADERS]
    key = (path, scope.get("query_string", b""), scope.get("scheme", ""), *headers)
    return key if len(str(key)) < LONGEST else None
