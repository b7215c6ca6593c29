"""Serve the OpenAI-compatible endpoint alone, without the page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from starlette.middleware.cors import CORSMiddleware

from ..engine.backend import Backend
from ..engine.limits import RunQueue
from ..engine.loading import Loader
from ..engine.run_queue import GRACE
from .http_guard import HttpGuard
from .http_timeouts import with_timeouts
from .openai_api import OpenAIApi
from .openai_fields import ApiLimits

PARALLEL = 8  # requests that are answered at once
WAITING = 1024  # requests that may wait, of one address too: the machine is its user's own
HALF_OPEN = 128  # requests of one address that have not arrived: a harness sends many at once
METHODS = ("GET", "POST", "HEAD")


def serve_api(
    backend: Backend,
    host: str,
    port: int,
    keys: tuple[str, ...],
    started: Callable[[], None] = lambda: None,
    limits: ApiLimits = ApiLimits(),
    parallel: int = PARALLEL,
    origins: Sequence[str] = (),
) -> None:
    """Serve the OpenAI-compatible endpoint without the page, with the same HTTP checks in front of it,
    until a signal ends it. parallel: requests that are answered at once; origins: web pages whose scripts may
    read answers ("*": any)."""
    queue = RunQueue(WAITING, WAITING, silence=limits.seconds + GRACE, together=parallel)
    api = OpenAIApi(backend, queue, Loader(backend), keys, limits=limits)
    app: Any = HttpGuard(api, {}, {}, api=api)
    if origins:
        app = CORSMiddleware(app, allow_origins=origins, allow_methods=METHODS, allow_headers=["*"])
    config = uvicorn.Config(app, host, port, log_level="warning", forwarded_allow_ips="none")
    config.load()
    config.http_protocol_class = with_timeouts(config.http_protocol_class, HALF_OPEN)
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
