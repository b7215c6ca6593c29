"""OpenAI-compatible endpoint: /v1/models, /v1/chat/completions, /v1/completions, and /v1/traces/ID for the
trace of an answer.

``extra_body={"speculative": {"method": KEY, "knobs": {...}}}`` chooses the method; an answer's
``speculative`` field holds the mean accepted length, the number of target passes and a link to its trace.
The queue, the limits and each address's share are those of the page. Fields have vLLM's names and
semantics; an unknown field is refused by name.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, ClassVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from .backend import Backend
from .engine_job import EngineJob
from .generation import Generation
from .limits import (
    ANSWERS,
    BASELINE,
    CONVERSATION_CHARACTERS,
    NEW_TOKENS,
    RUN_SECONDS,
    TURNS,
    RunQueue,
    Visitor,
    read_knobs,
)
from .loading import Loader
from .messages import Refused, shorten

ROLES = ("system", "developer", "user", "assistant", "tool")
REQUEST_FIELDS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "bad_words",
    "min_tokens",
    "ignore_eos",
    "stop",
    "stop_token_ids",
    "seed",
    "max_tokens",
    "n",
    "response_format",
    "tools",
    "tool_choice",
    "enable_thinking",
    "guidance_scale",
    "generation_config",
)
OTHER_FIELDS = (
    "chat_template_kwargs",
    "model",
    "stream",
    "stream_options",
    "max_completion_tokens",
    "logprobs",
    "speculative",
    "user",
    "metadata",
    "store",
)
MESSAGE_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name")
DEFAULT_METHOD = "speculative"
WATCH = 0.25  # seconds between two looks whether a client has left
TRACES = 64  # traces kept until newer ones replace them
TRACE_BYTES = 32 * 2**20  # bytes of them
FINISH = {
    "stop": "stop",
    "stop_string": "stop",
    "length": "length",
    "context": "length",
    "deadline": "length",
    "stopped": "stop",
}
STATUS = {
    "openai.key": 401,
    "openai.model": 404,
    "openai.route": 404,
    "openai.trace": 404,
    "run.crashed": 500,
    "run.memory": 503,
    "run.silent": 503,
    "hub.unreachable": 503,
    "models.failed": 500,
    "models.memory": 503,
}
TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}


class OpenAIApi:
    """An ASGI app with the endpoints under /v1. keys: API keys, of which a request must carry one; if
    empty, no key is needed. page: whether the page is served, too, where the trace of an answer can be
    opened."""

    def __init__(
        self,
        backend: Backend,
        run_queue: RunQueue,
        loader: Loader,
        keys: tuple[str, ...] = (),
        page: bool = False,
    ):
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

    async def _generate(self, request: Request, kind: type[Shape]) -> Response:
        if why := self._wrong_key(request):
            return why
        try:
            body = await request.json()
            address = request.client.host if request.client else ""
            target, asked = self._read(
                body, kind, owner_of(address, request.headers.get("authorization", ""))
            )
            shape = kind(self._names()[target], str(request.base_url).rstrip("/"))
            left = Departure()
            chunks = self._chunks(target, asked, shape, Visitor(address), left)
            streamed, usage = _stream_fields(body)
            if streamed:
                with watched(request, left):
                    first = await anext(
                        chunks, None
                    )  # a refusal before the first token is a status, not an event
                if first is None:
                    return Response(status_code=499)
                return StreamingResponse(shape.events(first, chunks, usage), media_type="text/event-stream")
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

    def _read(self, body: Any, kind: type[Shape], owner: str = "") -> tuple[str | None, Generation]:
        """Read a request. Raises Refused that names the field."""
        if not isinstance(body, dict):
            raise Refused("http.malformed")
        for name, value in body.items():
            if name not in (*REQUEST_FIELDS, *OTHER_FIELDS, *kind.fields) and value not in (None, [], {}):
                raise Refused("openai.field", field=shorten(name, 60))
        names = self._names()
        name = body.get("model") or next(iter(names.values()))
        target = next((target for target, model in names.items() if name == model), "")
        if target == "":
            raise self._no_model(name)
        method, knobs = self._method(body.get("speculative"), target)
        fields = {name: body[name] for name in REQUEST_FIELDS if body.get(name) is not None}
        _stream_fields(body)
        length = body.get("max_completion_tokens")
        seeded = "seed" in fields
        fields |= {
            "max_tokens": fields.get("max_tokens", NEW_TOKENS) if length is None else length,
            "logprobs": kind.logprobs(body),
            "seed": fields.get("seed", secrets.randbits(31)),
            **_template_fields(body.get("chat_template_kwargs")),
        }
        for name, most in (("max_tokens", NEW_TOKENS), ("n", ANSWERS)):
            if not isinstance(fields.get(name, 1), int) or not 1 <= fields.get(name, 1) <= most:
                raise Refused("openai.value", field=name, form=f"a whole number from 1 to {most}")
        fields |= kind.picture(body)
        return target, Generation(kind.prompt(body), kind.raw, method, knobs, fields, owner, seeded)

    def _method(self, asked: Any, target: str | None) -> tuple[str, dict[str, Any]]:
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
            key = (
                BASELINE
                if DEFAULT_METHOD in off or DEFAULT_METHOD not in self._backend.cards
                else DEFAULT_METHOD
            )
        cards = {name: card for name, card in self._backend.cards.items() if ":" not in name}
        if not isinstance(key, str) or key not in cards:
            raise Refused("field.method", name=shorten(key, 60), names=", ".join(cards))
        return key, read_knobs(cards[key], asked.get("knobs", {}))

    async def _chunks(
        self,
        target: str | None,
        asked: Generation,
        shape: Shape,
        visitor: Visitor,
        left: Departure,
    ) -> AsyncGenerator[dict[str, Any]]:
        """Yield the chunks of an answer, after its place in the queue; none once its
        client has left. Raises Refused."""
        with self._run_queue.open_run(visitor.address):
            async with aclosing(self._loader.wait(target)) as progress:
                async for _ in progress:
                    if left.gone:
                        return
            batch = await asyncio.to_thread(self._backend.batch_name, target, asked)
            job = EngineJob(
                self._run_queue,
                lambda stop: self._backend.generate(target, asked, stop, RUN_SECONDS),
                visitor,
                batch,
            )
            left.ends(job.stop)
            records: list[dict[str, Any]] = []
            async with aclosing(job.stream()) as parts:
                async for part in parts:
                    for chunk in (one for chunks in part for one in chunks) if isinstance(part, list) else ():
                        records += chunk.pop("records", [])
                        if "finish" in chunk:
                            chunk["speculative"]["trace"] = f"{shape.base}/v1/traces/{shape.id}.jsonl"
                            if self._page:
                                chunk["speculative"]["page"] = f"{shape.base}/#trace={shape.id}"
                            self._keep(shape.id, records)
                        yield chunk

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


class Shape:
    """The format of an answer, complete or streamed. Each endpoint has a subclass."""

    raw = False
    prefix = ""
    name = ""
    fields: tuple[str, ...] = ()  # of this kind of request only
    prompt: ClassVar[Callable[[dict[str, Any]], Any]]  # the part of a request's body that is to be continued
    logprobs: ClassVar[
        Callable[[dict[str, Any]], int | None]
    ]  # how many alternatives of each token it asks for

    @staticmethod
    def picture(body: dict[str, Any]) -> dict[str, str]:
        """Return the field ``image`` of a request whose messages hold a picture. Raises Refused."""
        return {}

    def __init__(self, model: str, base: str):
        self.id, self.base = self.prefix + secrets.token_hex(12), base
        self._head = {"id": self.id, "object": self.name, "created": int(time.time()), "model": model}
        self._answers: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        self._speculative: dict[str, Any] = {}

    def add(self, chunk: dict[str, Any]) -> None:
        """Add a chunk of generation.generate to the complete answer."""
        answer = self._answers.setdefault(
            chunk["index"], {"text": "", "logprobs": [], "finish": None, "calls": []}
        )
        answer["text"] += chunk.get("text", "")
        answer["logprobs"] += chunk.get("logprobs") or []
        if "finish" in chunk:
            answer["calls"] = [
                {"id": "call_" + secrets.token_hex(12), "type": "function", "function": call}
                for call in chunk["tool_calls"]
            ]
            answer["finish"] = "tool_calls" if answer["calls"] else FINISH.get(chunk["finish"], "stop")
            self._usage["prompt_tokens"] = chunk["usage"]["prompt_tokens"]
            if chunk["usage"].get("cached_tokens"):
                self._usage["prompt_tokens_details"] = {"cached_tokens": chunk["usage"]["cached_tokens"]}
            self._usage["completion_tokens"] += chunk["usage"]["completion_tokens"]
            self._usage["total_tokens"] = self._usage["prompt_tokens"] + self._usage["completion_tokens"]
            self._speculative = _together(self._speculative, chunk["speculative"])

    def whole(self) -> dict[str, Any]:
        """Return the complete answer as JSON data."""
        choices = [self._choice(index, answer) for index, answer in sorted(self._answers.items())]
        return self._head | {"choices": choices, "usage": self._usage, "speculative": self._speculative}

    async def events(
        self, first: dict[str, Any], chunks: AsyncGenerator[dict[str, Any]], usage: bool
    ) -> AsyncIterator[str]:
        """Yield the server-sent events of a streamed answer. usage: end with an event without choices that
        holds the token counts."""
        async with aclosing(chunks):
            try:
                yield self._event(first)
                async for chunk in chunks:
                    yield self._event(chunk)
            except Refused as why:
                yield f"data: {json.dumps(error_object(why)[1])}\n\n"
        if usage:
            yield f"data: {json.dumps(self._stream_head() | {'choices': [], 'usage': self._usage})}\n\n"
        yield "data: [DONE]\n\n"

    def _event(self, chunk: dict[str, Any]) -> str:
        begun = chunk["index"] in self._answers
        self.add(chunk)
        whole, logprobs = self._answers[chunk["index"]], chunk.get("logprobs") or []
        answer = {
            "text": chunk.get("text", ""),
            "logprobs": logprobs,
            "calls": whole["calls"],
            "finish": whole["finish"] if "finish" in chunk else None,
            "before": whole["logprobs"][: len(whole["logprobs"]) - len(logprobs)],
        }
        more = {"speculative": chunk["speculative"]} if "finish" in chunk else {}
        return f"data: {json.dumps(self._stream_head() | {'choices': [self._delta(chunk['index'], answer, begun)]} | more)}\n\n"

    def _stream_head(self) -> dict[str, Any]:
        return self._head

    def _choice(self, index: int, answer: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _delta(self, index: int, answer: dict[str, Any], begun: bool) -> dict[str, Any]:
        raise NotImplementedError


def is_picture(part: Any) -> bool:
    """Return whether a part of a message's content is a picture."""
    return isinstance(part, dict) and part.get("type") == "image_url"


def without_pictures(message: Any) -> Any:
    """Return a message's content without its pictures; the target reads a picture before the whole
    conversation."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or message.get("role") != "user":
        return content
    return [part for part in content if not is_picture(part)]


class ChatShape(Shape):
    """The format of /v1/chat/completions."""

    prefix = "chatcmpl-"
    name = "chat.completion"
    fields = ("messages", "top_logprobs")

    @staticmethod
    def prompt(body: dict[str, Any]) -> list[dict[str, str]]:
        """Return the messages of a request's body; text parts of a message are joined. Raises Refused."""
        given = body.get("messages")
        messages = []
        for one in given if isinstance(given, list) and 0 < len(given) <= TURNS + 1 else ():
            content = without_pictures(one)
            if isinstance(content, list) and all(
                isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
                for part in content
            ):
                content = "".join(part["text"] for part in content)
            unknown = (
                [name for name in one if name not in MESSAGE_FIELDS and one[name]]
                if isinstance(one, dict)
                else []
            )
            if unknown:
                raise Refused("openai.field", field=f"messages: {shorten(unknown[0], 60)}")
            calls = (
                {name: one[name] for name in ("tool_calls", "tool_call_id", "name") if one.get(name)}
                if isinstance(one, dict)
                else {}
            )
            content = "" if content is None and "tool_calls" in calls else content
            if isinstance(content, str) and one.get("role") in ROLES:
                messages.append(
                    {"role": one["role"].replace("developer", "system"), "content": content, **calls}
                )
        if (
            not messages
            or not isinstance(given, list)
            or len(messages) != len(given)
            or messages[-1]["role"] not in ("user", "tool")
        ):
            raise Refused("openai.messages", most=TURNS + 1)
        if sum(len(m["content"]) for m in messages) > CONVERSATION_CHARACTERS:
            raise Refused("field.conversation", turns=TURNS, characters=CONVERSATION_CHARACTERS)
        return messages

    @staticmethod
    def picture(body: dict[str, Any]) -> dict[str, str]:
        """Return the field ``image`` for the picture in a request's messages; empty without one. Raises
        Refused."""
        given = body.get("messages")
        contents = [
            one.get("content") for one in (given if isinstance(given, list) else ()) if isinstance(one, dict)
        ]
        parts = [
            part for content in contents if isinstance(content, list) for part in content if is_picture(part)
        ]
        if not parts:
            return {}
        address = parts[0].get("image_url")
        address = address.get("url") if isinstance(address, dict) else address
        if len(parts) > 1 or not isinstance(address, str):
            raise Refused(
                "openai.value",
                field="image_url",
                form='one picture in all messages, {"url": "data:image/png;base64,..."}',
            )
        return {"image": address}

    @staticmethod
    def logprobs(body: dict[str, Any]) -> int | None:
        """Return the requested number of alternatives per token, 0 for log-probabilities of the tokens
        alone, None for none. Raises Refused."""
        asked, top = body.get("logprobs"), body.get("top_logprobs")
        if asked not in (None, True, False) or isinstance(asked, int) and not isinstance(asked, bool):
            raise Refused("openai.value", field="logprobs", form="true or false")
        if top is not None and not asked:
            raise Refused("openai.value", field="top_logprobs", form="given together with logprobs: true")
        return (top or 0) if asked else None

    def _stream_head(self) -> dict[str, Any]:
        return self._head | {"object": "chat.completion.chunk"}

    def _choice(self, index: int, answer: dict[str, Any]) -> dict[str, Any]:
        calls = {"tool_calls": answer["calls"]} if answer["calls"] else {}
        content = answer["text"] or (None if calls else "")
        return {
            "index": index,
            "message": {"role": "assistant", "content": content, "refusal": None, **calls},
            "logprobs": self._logprobs(answer),
            "finish_reason": answer["finish"],
        }

    def _delta(self, index: int, answer: dict[str, Any], begun: bool) -> dict[str, Any]:
        delta = ({} if begun else {"role": "assistant"}) | (
            {"content": answer["text"]} if answer["text"] or not begun else {}
        )
        if answer["calls"]:
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(answer["calls"])]
        return {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(answer),
            "finish_reason": answer["finish"],
        }

    @staticmethod
    def _logprobs(answer: dict[str, Any]) -> dict[str, Any] | None:
        def known(one: dict[str, Any]) -> dict[str, Any]:  # OpenAI's fields
            return {name: one[name] for name in ("token", "bytes", "logprob")}

        content = [
            known(one) | {"top_logprobs": [known(top) for top in one["top_logprobs"]]}
            for one in answer["logprobs"] or ()
        ]
        return {"content": content, "refusal": None} if content else None


class CompletionShape(Shape):
    """The format of /v1/completions."""

    raw = True
    prefix = "cmpl-"
    name = "text_completion"
    fields = ("prompt",)

    @staticmethod
    def prompt(body: dict[str, Any]) -> str:
        """Return the prompt of a request's body. Raises Refused."""
        given = body.get("prompt")
        given = given[0] if isinstance(given, list) and len(given) == 1 else given
        if not isinstance(given, str) or not 0 < len(given) <= CONVERSATION_CHARACTERS:
            raise Refused(
                "openai.value",
                field="prompt",
                form=f"one text of 1 to {CONVERSATION_CHARACTERS:,} characters",
            )
        return given

    @staticmethod
    def logprobs(body: dict[str, Any]) -> int | None:
        """Return the requested number of alternatives per token, None for no log-probabilities."""
        return body.get("logprobs")

    def _choice(self, index: int, answer: dict[str, Any]) -> dict[str, Any]:
        return {
            "index": index,
            "text": answer["text"],
            "logprobs": self._logprobs(answer),
            "finish_reason": answer["finish"],
        }

    def _delta(self, index: int, answer: dict[str, Any], begun: bool) -> dict[str, Any]:
        return self._choice(index, answer)

    @staticmethod
    def _logprobs(answer: dict[str, Any]) -> dict[str, Any] | None:
        found = answer["logprobs"]
        if not found:
            return None
        earlier = answer.get("before", [])
        offsets = _offsets([*earlier, *found])[len(earlier) :]
        return {
            "tokens": [one["token"] for one in found],
            "token_logprobs": [one["logprob"] for one in found],
            "text_offset": offsets,
            "top_logprobs": [_by_name(one["top_logprobs"]) for one in found],
        }


def _by_name(tops: list[dict[str, Any]]) -> dict[str, float]:
    """Return {token: log-probability}. Tokens of one text are all kept: the later ones are named by their
    ids, as vLLM does."""
    found: dict[str, float] = {}
    for top in tops:
        name = f"token_id:{top['id']}" if top["token"] in found else top["token"]
        found[name] = top["logprob"]
    return found


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


def owner_of(address: str, authorization: str) -> str:
    """Return a name for the owner of a request's conversation, made from address and API key. KV caches are
    reused for the same owner only."""
    return hashlib.sha256(f"{address}\n{authorization}".encode()).hexdigest()


def _offsets(tokens: list[dict[str, Any]]) -> list[int]:
    """Return the place in the text at which each token begins; a token inside a character begins where that
    character does."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    at = 0
    found = []
    for one in tokens:
        data = bytes(one["bytes"])
        broken = (
            decoder.getstate()[0] and data and not 0x80 <= data[0] < 0xC0
        )  # the character before stays incomplete
        found.append(at + bool(broken))
        at += len(decoder.decode(data))
    return found


def _stream_fields(body: dict[str, Any]) -> tuple[bool, bool]:
    """Read ``stream``, and whether its last event holds the usage. Raises Refused."""
    streamed, options = body.get("stream") or False, body.get("stream_options") or {}
    if not isinstance(streamed, bool):
        raise Refused("openai.value", field="stream", form="true or false")
    usage = options.get("include_usage", False) if isinstance(options, dict) else None
    if not isinstance(usage, bool) or set(options) - {"include_usage"} or options and not streamed:
        raise Refused(
            "openai.value",
            field="stream_options",
            form='{"include_usage": true or false}, given together with stream: true',
        )
    return streamed, usage


def _together(before: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of the answers of a request: counts are added, the rest is the last answer's."""
    out = dict(answer)
    for name in ("passes", "tokens", "tried", "accepted"):
        out[name] = before.get(name, 0) + answer[name]
    out["mean_accepted_length"] = out["tokens"] / out["passes"] if out["passes"] else None
    out["acceptance_rate"] = out["accepted"] / out["tried"] if out["tried"] else None
    out["time_to_first_token"] = before.get("time_to_first_token", answer["time_to_first_token"])
    out["request"] = before.get("request", answer["request"])
    return out


def _template_fields(given: Any) -> dict[str, Any]:
    """Read vLLM's chat_template_kwargs: only enable_thinking. Raises Refused that names any other."""
    given = {} if given is None else given
    if not isinstance(given, dict) or set(given) - {"enable_thinking"}:
        raise Refused(
            "openai.value", field="chat_template_kwargs", form='an object {"enable_thinking": true or false}'
        )
    return given


def error_object(why: Refused) -> tuple[int, dict[str, Any]]:
    """Return (HTTP status, error object in OpenAI's form) of a refusal."""
    family = why.code.partition(".")[0]
    status = STATUS.get(why.code) or {"size": 413, "queue": 429, "budget": 429}.get(family, 400)
    return status, {
        "error": {
            "message": str(why),
            "type": TYPES.get(status, "invalid_request_error"),
            "code": why.code,
            "param": why.values.get("field") or _param(why.code),
        }
    }


def _param(code: str) -> str | None:
    """Return the field of an error of the engine, where its code names one."""
    family, _, name = code.partition(".")
    return (
        name
        if family == "request" and name in REQUEST_FIELDS
        else "response_format"
        if family == "format"
        else None
    )


def refusal(why: Refused) -> Response:
    """Return the HTTP response of a refusal."""
    status, body = error_object(why)
    return JSONResponse(body, status)


def _model_object(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "specviz"}


def configured_keys() -> tuple[str, ...]:
    """Return the API keys that the owner lists in SPECVIZ_API_KEYS."""
    return tuple(os.environ.get("SPECVIZ_API_KEYS", "").replace(",", " ").split())


__all__ = ["OpenAIApi", "configured_keys"]
