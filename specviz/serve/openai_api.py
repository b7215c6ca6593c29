"""OpenAI-compatible endpoint: /v1/models, /v1/chat/completions, /v1/completions, /v1/traces/ID for the
trace of an answer, and /health, /version, /metrics.

``extra_body={"speculative": {"method": KEY, "knobs": {...}}}`` chooses the method; an answer's
``speculative`` field holds the mean accepted length, the number of target passes and a link to its trace.
The queue, the limits and each address's share are those of the page, unless the server is one's own. Fields
have vLLM's names and semantics; an unknown field is refused by name (openai_fields.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from .. import VERSION
from ..engine.backend import Backend
from ..engine.engine_job import EngineJob
from ..engine.format_trials import try_format
from ..engine.generation import Generation
from ..engine.limits import BASELINE, RunQueue, Visitor, read_knobs
from ..engine.loading import Loader
from ..engine.messages import Refused, close_names, shorten
from ..engine.zero_gpu import on_zero_gpu
from .openai_errors import error_object, refusal
from .openai_fields import ApiLimits, Wanted, read_generation
from .openai_formats import FINISH, ChatShape, CompletionShape, Shape
from .openai_metrics import ApiMetrics

DEFAULT_METHOD = "speculative"
PREDICTED_METHOD = "predicted_output"  # of a request with a prediction
ENDED: Any = object()  # what a stream without chunks gives
WATCH = 0.25  # seconds between two looks whether a client has left
TRACES = 64  # traces kept until newer ones replace them
TRACE_BYTES = 32 * 2**20  # bytes of them
ALIVE_SECONDS = 10.0  # without anything to send, after which a comment keeps the connection open
STREAM_HEADERS = {  # without them proxies hold a stream back, or compress it
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}


class OpenAIApi:
    """An ASGI app with the endpoints. keys: API keys, of which a request must carry one; if empty, no key
    is needed. page: whether the page is served, too, where the trace of an answer can be opened. limits: of
    a request."""

    def __init__(
        self,
        backend: Backend,
        run_queue: RunQueue,
        loader: Loader,
        keys: tuple[str, ...] = (),
        page: bool = False,
        limits: ApiLimits = ApiLimits(),
    ):
        self._limits = limits
        self._metrics = ApiMetrics()
        self._page = page
        self._backend = backend
        self._run_queue = run_queue
        self._loader = loader
        self._keys = keys
        self._traces: OrderedDict[str, bytes] = OrderedDict()
        self._app = Starlette(
            routes=[
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/v1/models/{name:path}", self._model, methods=["GET"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/completions", self._completions, methods=["POST"]),
                Route("/v1/traces/{name}", self._trace, methods=["GET"]),
                Route("/health", self._health, methods=["GET"]),
                Route("/version", self._version, methods=["GET"]),
                Route("/metrics", self._counts, methods=["GET"]),
                Route("/{path:path}", self._nothing, methods=["GET", "POST", "PUT", "DELETE"]),
            ]
        )

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        await self._app(scope, receive, send)

    async def _nothing(self, request: Request) -> Response:
        return refusal(Refused("openai.route"))

    async def _models(self, request: Request) -> Response:
        if why := self._wrong_key(request):
            return why
        # A model that is not on this machine may be requested, too, and is then fetched.
        away = {one["model"] for one in self._backend.targets() if one.get("away")}
        names = [name for name in self._names().values() if name not in away]
        return JSONResponse({"object": "list", "data": [_model_object(name) for name in names]})

    async def _model(self, request: Request) -> Response:
        if why := self._wrong_key(request):
            return why
        name = request.path_params["name"]
        return (
            JSONResponse(_model_object(name))
            if name in self._names().values()
            else refusal(self._no_model(name))
        )

    async def _trace(self, request: Request) -> Response:
        """Return the recorded run; its name cannot be guessed, so that the link needs no key."""
        found = self._traces.get(request.path_params["name"].removesuffix(".jsonl"))
        return (
            refusal(Refused("openai.trace"))
            if found is None
            else PlainTextResponse(found, media_type="application/jsonl")
        )

    async def _chat(self, request: Request) -> Response:
        return await self._generate(request, ChatShape)

    async def _completions(self, request: Request) -> Response:
        return await self._generate(request, CompletionShape)

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _version(self, request: Request) -> Response:
        return JSONResponse({"version": VERSION})

    async def _counts(self, request: Request) -> Response:
        if why := self._wrong_key(request):
            return why
        model = next(iter(self._names().values()))
        return PlainTextResponse(self._metrics.page(model), media_type="text/plain; version=0.0.4")

    async def _generate(self, request: Request, kind: type[Shape]) -> Response:
        if why := self._wrong_key(request):
            return why
        try:
            body = await request.json()
            address = request.client.host if request.client else ""
            salt = body.get("cache_salt") if isinstance(body, dict) else None
            owner = owner_of(address, request.headers.get("authorization", ""), str(salt or ""))
            target, asked, wanted = self._read(body, kind, owner, address)
            shape = kind(self._names()[target], str(request.base_url).rstrip("/"), wanted)
            left = Departure()
            chunks = self._chunks(target, asked, shape, Visitor(address), left)
            if wanted.streamed:
                parts = with_pauses(chunks, ALIVE_SECONDS)
                with watched(request, left):
                    # a refusal that comes at once is a status, not an event
                    first = await anext(parts, ENDED)
                if first is ENDED or left.gone:
                    await parts.aclose()
                    return Response(status_code=499)
                return StreamingResponse(
                    shape.events(first, parts), media_type="text/event-stream", headers=STREAM_HEADERS
                )
            async with aclosing(chunks):
                with watched(request, left):
                    async for chunk in chunks:
                        shape.add(chunk)
            if left.gone:
                return Response(status_code=499)
            return JSONResponse(shape.whole())
        except Refused as why:
            return refusal(why)
        except ValueError:
            return refusal(Refused("http.malformed"))

    def _read(
        self, body: Any, kind: type[Shape], owner: str = "", address: str = ""
    ) -> tuple[str | None, Generation, Wanted]:
        """Read a request: the target, what is to be generated, and the format of the answer. Raises Refused
        that names the field."""
        if not isinstance(body, dict):
            raise Refused("http.malformed")
        names = self._names()
        name = body.get("model")
        name = next(iter(names.values())) if name in (None, "") else name
        target = next((target for target, model in names.items() if name == model), "")
        if target == "":
            raise self._no_model(name)
        asked, wanted = read_generation(body, kind, self._limits)
        method, knobs = self._method(body.get("speculative"), target, bool(asked["predicted"]))
        generation = Generation(method=method, knobs=knobs, owner=owner, address=address, **asked)
        return target, generation, wanted

    def _method(self, asked: Any, target: str | None, predicted: bool) -> tuple[str, dict[str, Any]]:
        asked = {} if asked is None else asked
        if (
            not isinstance(asked, dict)
            or not isinstance(asked.get("knobs", {}), dict)
            or set(asked) - {"method", "knobs"}
        ):
            raise Refused(
                "openai.value", field="speculative", form='an object {"method": KEY, "knobs": {NAME: VALUE}}'
            )
        key = asked.get("method")
        if key is None:
            off = self._backend.unsupported_reason(target) if self._backend.ready(target) else {}
            wished = (PREDICTED_METHOD,) * predicted + (DEFAULT_METHOD,)
            able = [name for name in wished if name in self._backend.cards and name not in off]
            key = able[0] if able else BASELINE
        cards = {name: card for name, card in self._backend.cards.items() if ":" not in name}
        if not isinstance(key, str) or key not in cards:
            raise Refused("field.method", name=shorten(key, 60), names=close_names(key, cards))
        return key, read_knobs(cards[key], asked.get("knobs", {}))

    async def _chunks(
        self,
        target: str | None,
        asked: Generation,
        shape: Shape,
        visitor: Visitor,
        left: Departure,
    ) -> AsyncGenerator[dict[str, Any]]:
        """Yield the chunks of an answer, after its place in the queue. Raises Refused."""
        counts, began, texts = self._metrics, time.monotonic(), 0
        with self._run_queue.open_run(visitor.address):
            counts.waiting += 1
            state = "waiting"
            try:
                async for parts in self._job_parts(target, asked, visitor, left):
                    if state == "waiting":
                        counts.waiting, counts.running, state = (
                            counts.waiting - 1,
                            counts.running + 1,
                            "running",
                        )
                        counts.observe("request_queue_time_seconds", shape.model, time.monotonic() - began)
                    for chunk in parts:
                        if "finish" in chunk:
                            counts.answered(shape.model, chunk, FINISH.get(chunk["finish"], "stop"))
                            self._link(shape, chunk)
                        elif not texts:
                            texts += 1
                            counts.observe(
                                "time_to_first_token_seconds", shape.model, time.monotonic() - began
                            )
                        yield chunk
            finally:
                setattr(counts, state, getattr(counts, state) - 1)
                counts.observe("e2e_request_latency_seconds", shape.model, time.monotonic() - began)

    async def _job_parts(
        self, target: str | None, asked: Generation, visitor: Visitor, left: Departure
    ) -> AsyncGenerator[list[dict[str, Any]]]:
        """Yield lists of chunks from the engine as they come; none once the client has left. Raises
        Refused."""
        async with aclosing(self._loader.wait(target)) as progress:
            async for _ in progress:
                if left.gone:
                    return
        await try_format(asked.fields.get("response_format"))
        batch = await asyncio.to_thread(self._backend.batch_name, target, asked)
        job = EngineJob(
            self._run_queue,
            lambda stop: self._backend.generate(target, asked, stop, self._limits.seconds),
            visitor,
            batch,
            gives_way=not batch and not on_zero_gpu(),  # an accelerator is leased for a time on the clock
        )
        left.ends(job.stop)
        async with aclosing(job.stream()) as parts:
            async for part in parts:
                if isinstance(part, list):
                    yield [chunk for chunks in part for chunk in chunks]

    def _link(self, shape: Shape, chunk: dict[str, Any]) -> None:
        """Keep the trace of an answer and name its address in its last chunk; the traces of a request's
        answers are one file."""
        shape.records += chunk.pop("records")
        chunk["speculative"]["trace"] = f"{shape.base}/v1/traces/{shape.id}.jsonl"
        if self._page:
            chunk["speculative"]["page"] = f"{shape.base}/#trace={shape.id}"
        self._keep(shape.id, shape.records)

    def _keep(self, name: str, records: list[dict[str, Any]]) -> None:
        self._traces[name] = "".join(
            json.dumps(r, ensure_ascii=False, separators=(",", ":")) + "\n" for r in records
        ).encode("utf-8", "replace")
        while len(self._traces) > 1 and (
            len(self._traces) > TRACES or sum(map(len, self._traces.values())) > TRACE_BYTES
        ):
            self._traces.popitem(last=False)

    def _names(self) -> dict[str | None, str]:
        """Return the models that may be requested: the name that a backend loads -> the name in an answer."""
        return {one["name"] or None: one["model"] for one in self._backend.targets() if not one.get("large")}

    def _no_model(self, name: Any) -> Refused:
        return Refused("openai.model", name=shorten(name, 80), names=", ".join(self._names().values()))

    def _wrong_key(self, request: Request) -> Response | None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        good = not self._keys or any([hmac.compare_digest(given, key.encode()) for key in self._keys])  # noqa: C419 (all are compared)
        return None if good else refusal(Refused("openai.key"))


async def with_pauses(chunks: AsyncGenerator[Any], seconds: float) -> AsyncGenerator[Any]:
    """Yield what ``chunks`` yields, and None each time that it yields nothing for ``seconds``."""
    coming: asyncio.Task | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(chunks))
            if not (await asyncio.wait({coming}, timeout=seconds))[0]:
                yield None
                continue
            done, coming = coming, None
            try:
                one = done.result()
            except StopAsyncIteration:
                return
            yield one
    finally:
        if coming is not None:
            coming.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration, Refused):
                await coming
        await chunks.aclose()


class Departure:
    """Whether the client of a request has left. gone: it has."""

    def __init__(self):
        self.gone = False
        self._stops: list[threading.Event] = []

    def ends(self, stop: threading.Event) -> None:
        """Set an event as soon as the client has left."""
        self._stops.append(stop)
        if self.gone:
            stop.set()

    def notice(self) -> None:
        """Record that the client has left."""
        self.gone = True
        for stop in self._stops:
            stop.set()


@contextmanager
def watched(request: Request, left: Departure) -> Iterator[None]:
    """Context manager: notice when the client of a request closes its connection, also while the request waits
    in the queue and nothing is sent."""

    async def watch() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(WATCH)
        left.notice()

    task = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        task.cancel()


def owner_of(address: str, authorization: str, salt: str = "") -> str:
    """Return a name for the owner of a request's conversation, made from address, API key and the request's
    ``cache_salt``. KV caches are reused for the same owner only."""
    data = json.dumps([address, authorization, salt])
    return hashlib.sha256(data.encode()).hexdigest()


def _model_object(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "specviz"}


def configured_keys() -> tuple[str, ...]:
    """Return the API keys that the owner lists in SPECVIZ_API_KEYS."""
    return tuple(os.environ.get("SPECVIZ_API_KEYS", "").replace(",", " ").split())


__all__ = ["OpenAIApi", "configured_keys", "error_object", "refusal"]
