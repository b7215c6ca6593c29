"""Serve the OpenAI-compatible endpoint alone, without the page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvicorn

from .backend import Backend
from .http_guard import HttpGuard
from .http_timeouts import with_timeouts
from .limits import RunQueue
from .loading import Loader
from .openai_api import OpenAIApi


def serve_api(
    backend: Backend, host: str, port: int, keys: tuple[str, ...], started: Callable[[], None] = lambda: None
) -> None:
    """Serve the OpenAI-compatible endpoint without the page, with the same HTTP checks in front of it,
    until a signal ends it."""
    api = OpenAIApi(backend, RunQueue(), Loader(backend), keys)
    config = uvicorn.Config(
        HttpGuard(api, {}, {}, api=api), host, port, log_level="warning", forwarded_allow_ips="none"
    )
    config.load()
    config.http_protocol_class = with_timeouts(config.http_protocol_class)
    server = uvicorn.Server(config)

    async def serve() -> None:
        async def announce() -> None:
            while not server.started:
                await asyncio.sleep(0.01)
            started()

        task = asyncio.ensure_future(announce())
        await server.serve()
        task.cancel()

    asyncio.run(serve())
