"""HTTP checks in front of the page: open routes, host names, request sizes, limits per address
(address_budget.py), and response headers.

Gradio has routes that this page does not use (uploads, a proxy, files, monitoring). All routes except
OPEN_ROUTES are closed, so a new route of a later Gradio is closed, too.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from ..engine.limits import BODY_BYTES, Visitor, check_size, without_surrogates
from ..engine.log_lines import log_failure
from ..engine.messages import Refused, shorten, text
from .address_budget import AddressBudget
from .page_cache import PATHS, PageCache
from .stored_runs import ROUTE as STORED
from .stored_runs import StoredRuns

log = logging.getLogger(__name__)

OWN_FILES = "/own/"  # the page's own files by name: no path of this machine is shown to anybody
OPEN_ROUTES = re.compile(
    r"/|/config/?|/theme\.css|/favicon\.ico|/robots\.txt|/manifest\.json|/(assets|static|svelte)/[^?]+"
    r"|/gradio_api/(info/?|openapi\.json|startup-events|theme\.css|app_id/?|cancel|reset/?|queue/(join|data)"
    r"|heartbeat/[^/]+|(run|api)/[^/]+/?|call/(v2/)?[^/]+(/[^/]*)?)"
)
API_ROUTES = re.compile(r"/v1/.*|/health|/version|/metrics", re.DOTALL)  # of the OpenAI-compatible endpoint
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([\w.-]+))(?::\d*)?", re.ASCII)  # of a Host header: name, port
CALL = re.compile(r"/gradio_api/call/([^/]+)/?")
HEARTBEAT = re.compile(
    r"/gradio_api/heartbeat/([^/]+)"
)  # a page's stream, open as long as the page; its name is the session's
EVENT = re.compile(r"/gradio_api/(queue/join|call/(v2/)?[^/]+/?)")  # a POST to one of these queues an event
BODY_SECONDS = 10.0  # until a request has arrived
REST_BYTES = 65_536  # read of a refused request's body before its connection is closed, because closing with unread bytes loses the answer
REST_SECONDS = 1.0
FREE = (
    OWN_FILES,
    "/assets/",
    "/static/",
    "/svelte/",
)  # files of the page: reading one is not counted as a request
IN_FLIGHT = 128  # requests of an address that are being answered, streams included: a page holds two
LARGE_ANSWER = re.compile(r"/gradio_api/(call|run|api)/(v2/)?(ask|methods)/?")  # answers of 0.2 to 0.4 MB
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half a character in JSON, or one of two halves
PRICE = 10  # requests that such a one, or a page that is not in memory, counts as
LATER = 0.5  # seconds after which "too many" is answered: a client that asks again at once costs less
SWEEP = 1.0  # seconds between two searches for unread answers
PART_BYTES = 32 * 2**10  # of an answer that is handed to a connection at once
FORWARDED = (
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-forwarded-prefix",
    b"x-forwarded-port",
    b"x-forwarded-server",
    b"x-real-ip",
)
# Gradio's page has scripts of its own in the text of the page and makes functions of its templates: both
# must be allowed.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'none'; frame-ancestors "
)
STATUS = {
    "budget": 429,
    "size": 413,
    "http.slow": 408,
    "stored.gone": 404,
    "stored.route": 405,
    "stored.folder": 507,
    "stored.busy": 429,
}


class HttpGuard:
    """ASGI middleware that lets only checked requests through to the app. ``parameters``: {endpoint for
    programs: its parameters in order}; ``own``: {name: file} that are served; ``api``: an ASGI app for the
    paths under /v1, or None; ``runs``: the runs that are kept for links, or None."""

    def __init__(
        self,
        app: Any,
        parameters: dict[str, list[str]],
        own: dict[str, Path],
        budget: AddressBudget | None = None,
        event_queue: Callable[[], Any] = lambda: None,
        api: Any = None,
        runs: StoredRuns | None = None,
    ):
        self._app = PageCache(app)
        self._parameters = parameters
        self._own = own
        self._api = api
        self._runs = runs
        self._hosts, self._proxies = allowed_hosts(), trusted_proxies()
        self._budget, self._event_queue = budget or AddressBudget(), event_queue
        self._sweeper: asyncio.Task | None = None
        self._in_flight: Counter[str] = Counter()

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._sweep()
        scope = _without_forged_headers(scope, self._proxies)
        address = (scope.get("client") or ("", 0))[0]
        if address and self._in_flight[address] >= IN_FLIGHT:
            request = Request(scope)
            await _answer(
                self._error(request, 429, "budget.events", most=IN_FLIGHT),
                request,
                _BoundedBody(receive),
                send,
            )
            return
        self._in_flight[address] += 1
        try:
            await self._guarded(scope, receive, send)
        finally:
            self._in_flight[address] -= 1
            if self._in_flight[address] <= 0:
                del self._in_flight[address]

    async def _guarded(self, scope: dict, receive: Callable, send: Callable) -> None:
        request = Request(scope)
        body = _BoundedBody(receive)
        begun = ended = False
        event = b"" if request.method == "POST" and EVENT.fullmatch(_path(request)) else None

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            nonlocal begun, ended, event
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *_headers(request)]
                event = event if message["status"] == 200 else None
            elif event is not None:
                event += message.get("body", b"")[:1000]
                if not message.get("more_body"):
                    self._note_event(request, event, body)
            ended = message["type"] == "http.response.body" and not message.get("more_body")
            await _send_in_parts(message, send)

        try:
            early = (
                self._answer_early(request, body)
                or await self._answer_stored(request, body)
                or await self._check_body(request, body, event is not None)
            )
            if early:
                await _answer(early, request, body, send_with_headers)
                return
            app = self._api if self._for_api(request) else self._app
            address, page = (
                request.client.host if request.client else "",
                HEARTBEAT.fullmatch(_path(request)) is not None,
            )
            with self._budget.session(address, body.session, page):
                await app(scope, body, _without_echo(send_with_headers))
        except Refused as why:
            if not begun:  # the server closes the connection of an answer that is left incomplete
                await _answer(self._refused(request, why), request, body, send_with_headers)
        except Exception as error:
            if begun and not isinstance(error, RuntimeError):
                log_failure(log, f"{request.method} {shorten(_path(request), 80)} broke off", error)
                return
            log.warning(
                "%s %s was refused: %s", request.method, shorten(_path(request), 80), type(error).__name__
            )
            if (
                begun and not ended
            ):  # a stream without a queued event: Gradio reports that in it and then fails
                await send({"type": "http.response.body", "body": b""})
            elif not begun:
                unknown = (
                    isinstance(error, (KeyError, LookupError)) or type(error).__name__ == "FnIndexInferError"
                )
                answer = self._no_endpoint() if unknown else self._error(request, 400, "http.malformed")
                await _answer(answer, request, body, send_with_headers)

    def _answer_early(self, request: Request, body: _BoundedBody) -> Response | None:
        """Return the answer to a request that is not passed on. Raises Refused."""
        path = _path(request)
        if not self._host_is_known(request.headers.get("host", "")):
            return _error(421, "http.host")
        if request.method not in ("GET", "HEAD") or not path.startswith(FREE):
            self._budget.request(request.client.host if request.client else "", self._price(request, path))
        if path.startswith(OWN_FILES):
            file = self._own.get(path[len(OWN_FILES) :])
            return _file(file, request) if file else _error(404, "http.file")
        if self._runs and STORED.fullmatch(path):
            body.most = self._runs.most_bytes
        elif not OPEN_ROUTES.fullmatch(path) and not self._for_api(request):
            return _error(404, "http.route")
        if (
            request.headers.get("content-length", "0").isdigit()
            and int(request.headers.get("content-length", "0")[:20]) > body.most
        ):
            raise Refused("size.body", most=body.most >> 10)
        for name in () if self._for_api(request) else _sessions(request):
            check_size("session", name)
            body.session = name
        return None

    def _price(self, request: Request, path: str) -> float:
        """Return how many requests a request counts as."""
        large = LARGE_ANSWER.fullmatch(path) or (path in PATHS and not self._app.has(request.scope))
        return PRICE if large else 1

    async def _answer_stored(self, request: Request, body: _BoundedBody) -> Response | None:
        """Return the answer to a request that stores or reads a run; None to any other. Raises Refused."""
        route = STORED.fullmatch(_path(request))
        return (
            await self._runs.answer(request, route[1], bool(route[2]), body.whole)
            if self._runs and route
            else None
        )

    async def _check_body(self, request: Request, body: _BoundedBody, event: bool) -> Response | None:
        """Read the body of a POST and check its size; return why an endpoint for programs cannot be called
        with it, if so."""
        if request.method != "POST":
            return None
        if event:
            self._budget.event(request.client.host if request.client else "")
        call = CALL.fullmatch(_path(request))
        if call is not None and call[1] not in self._parameters:
            return self._no_endpoint()
        data = await body.whole()
        try:
            value = json.loads(data or b"null")
        except (ValueError, RecursionError):
            return self._error(request, 422, "http.malformed")
        check_size("openai body" if _path(request).startswith("/v1/") else "body", value)
        if SURROGATE.search(data):
            value = without_surrogates(value)
            body.replace(json.dumps(value, ensure_ascii=False).encode())
        if isinstance(value, dict) and not self._for_api(request):
            check_size("session", value.get("session_hash"))
            body.session = (
                None if _path(request).startswith("/gradio_api/call/v2/") else value.get("session_hash")
            )  # v2 takes no session
        if call is None:
            return None
        parameters, arguments = (
            self._parameters[call[1]],
            value.get("data") if isinstance(value, dict) else None,
        )
        if isinstance(arguments, list) and len(arguments) == len(parameters):
            return None
        return _error(422, "http.arguments", name=call[1], arguments=", ".join(parameters))

    def _note_event(self, request: Request, answer: bytes, body: _BoundedBody) -> None:
        try:
            event = json.loads(answer)["event_id"]
        except (ValueError, TypeError, LookupError):
            return
        session = body.session if isinstance(body.session, str) else None
        if isinstance(event, str):
            self._budget.opened(request.client.host if request.client else "", event, session)

    def _sweep(self) -> None:
        """Start the search for unread answers, in the server's own event loop."""
        if self._sweeper is None or self._sweeper.done():
            queue = self._budget.queue = self._event_queue()
            self._sweeper = asyncio.get_running_loop().create_task(self._keep_sweeping(queue))

    async def _keep_sweeping(
        self, queue: Any, sleep: Callable = asyncio.sleep, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Drop unread answers every SWEEP seconds, until the server ends. sleep, clock: other ones for
        tests."""
        late = False
        while True:
            before = clock()
            await sleep(SWEEP)
            late = not late and clock() - before > 2 * SWEEP
            if late:  # this process stood still, so nobody could read: readers get until the next sweep
                continue
            self._budget.states = getattr(getattr(queue, "server_app", None), "state_holder", None)
            self._budget.drop_unread()
            if self._runs:
                self._runs.sweep()

    def _error(self, request: Request, status: int, code: str, **values: Any) -> Response:
        return (
            self._refused(request, Refused(code, **values))
            if self._for_api(request)
            else _error(status, code, **values)
        )

    def _for_api(self, request: Request) -> bool:
        return self._api is not None and API_ROUTES.fullmatch(_path(request)) is not None

    def _refused(self, request: Request, why: Refused) -> Response:
        """Return the answer to a refused request, in the form that its client reads."""
        if self._for_api(request):
            from .openai_api import refusal

            return refusal(why)
        return _json_error(
            STATUS.get(why.code) or STATUS.get(why.code.partition(".")[0], 400), str(why), why.code
        )

    def _no_endpoint(self) -> Response:
        return _error(404, "http.endpoint", names=", ".join("/" + name for name in self._parameters))

    def _host_is_known(self, host: str) -> bool:
        """Return whether the Host header is known: a page of a foreign name that points here may not read
        this server (DNS rebinding). Bare addresses are allowed."""
        form = HOST.fullmatch(host.lower())
        name = (form[1] or form[2]) if form else ""
        return "*" in self._hosts or name in self._hosts or name.endswith(".localhost") or _is_address(name)


class _BoundedBody:
    """``receive`` that limits bytes and seconds, and can replay what was read. session: the one that the
    request names; most: bytes."""

    def __init__(self, receive: Callable):
        self._receive = receive
        self._count = 0
        self._ahead = []
        self._whole = False
        self.session: Any = None
        self.most = BODY_BYTES

    async def __call__(self) -> dict:
        return self._ahead.pop(0) if self._ahead else await self._next()

    async def _next(self) -> dict:
        if self._whole:  # waits for the client to leave
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), BODY_SECONDS)
        except TimeoutError:
            raise Refused("http.slow", seconds=BODY_SECONDS) from None
        self._count += len(message.get("body", b""))
        self._whole = not message.get("more_body")
        if self._count > self.most:
            raise Refused("size.body", most=self.most >> 10)
        return message

    async def whole(self) -> bytes:
        """Return the whole body, which is replayed to the next receiver."""
        parts, ends = [], asyncio.get_running_loop().time() + BODY_SECONDS
        while not parts or parts[-1].get("more_body"):
            if asyncio.get_running_loop().time() > ends:
                raise Refused("http.slow", seconds=BODY_SECONDS)
            parts.append(await self._next())
        self._ahead = parts
        return b"".join(part.get("body", b"") for part in parts)

    def replace(self, data: bytes) -> None:
        """Replay other bytes than those that ``whole`` read."""
        self._ahead = [{"type": "http.request", "body": data, "more_body": False}]

    @property
    def arrived(self) -> bool:
        """Whether nothing of the body is left to read."""
        return self._whole

    async def drop_rest(self) -> None:
        """Read and drop at most REST_BYTES more of the body, for at most REST_SECONDS."""
        count = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while not self._whole and count < REST_BYTES:
                    message = await self._receive()
                    count += len(message.get("body", b""))
                    self._whole = not message.get("more_body")


def allowed_hosts() -> frozenset[str]:
    """Return the host names by which this server may be addressed ("*": any, because a Space's proxy has
    already checked the name)."""
    if os.environ.get("SPACE_ID"):
        return frozenset("*")
    named = os.environ.get("SPECVIZ_HOSTS", "").replace(",", " ").lower().split()
    root = urlsplit(os.environ.get("GRADIO_ROOT_PATH", "")).hostname or ""
    return frozenset({"localhost", socket.gethostname().lower(), *named, *filter(None, [root])})


def trusted_proxies() -> frozenset[str]:
    """Return the addresses whose X-Forwarded headers are trusted: those that the owner configures; on a
    Space "*", its proxy."""
    if os.environ.get("SPACE_ID"):
        return frozenset("*")
    return frozenset(os.environ.get("SPECVIZ_PROXY", "").replace(",", " ").split())


def _without_forged_headers(scope: dict, named: frozenset[str]) -> dict:
    """Return the scope without X-Forwarded headers or, if its peer is a trusted proxy, with the client
    named by the proxy; the client as ``client_key`` names it."""
    peer = (scope.get("client") or ("", 0))[0]
    headers = scope["headers"]
    if "*" in named or peer in named:
        client = b",".join(value for name, value in headers if name.lower() == b"x-forwarded-for").decode(
            "latin-1"
        )  # the proxy's is last
        peer = client.rpartition(",")[2].strip()[:64] or peer
    else:
        scope = scope | {
            "headers": [(name, value) for name, value in headers if name.lower() not in FORWARDED]
        }
    return scope | {"client": (client_key(peer), 0)} if peer else scope


def client_key(address: str) -> str:
    """Return the key under which the limits of an address are counted: an IPv4 address in either notation
    as itself, without a port; an IPv6 address as its first 64 bits, because a client has all addresses with
    these bits."""
    host = address
    if address.startswith("["):
        host = address[1:].partition("]")[0]
    elif address.count(":") == 1:
        host = address.partition(":")[0]
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False).network_address)


def visitor(request: Any) -> Visitor:
    """Return the Visitor that sent a request to a Gradio listener, with the number of its unread messages."""
    app, client = getattr(request, "app", None), getattr(request, "client", None)
    if app is None or client is None:
        return Visitor()
    session, waiting = request.session_hash, app.get_blocks()._queue.pending_messages_per_session

    def forget() -> None:
        messages = waiting.get(session)
        while messages is not None and not messages.empty():
            messages.get_nowait()

    return Visitor(client.host, lambda: waiting[session].qsize() if session in waiting else 0, forget)


async def _answer(response: Response, request: Request, body: _BoundedBody, send: Callable) -> None:
    """Send the answer to a request that was not passed on, and close the connection if its body has not
    arrived."""
    if body.arrived or (
        "transfer-encoding" not in request.headers
        and request.headers.get("content-length", "0").strip() in ("", "0")
    ):
        await response(request.scope, body, send)
        return
    response.headers["connection"] = "close"

    async def send_and_close(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            await send({**message, "more_body": True})
            await body.drop_rest()
            message = {"type": "http.response.body", "body": b""}
        await send(message)

    await response(request.scope, body, send_and_close)


def _without_echo(send: Callable) -> Callable:
    """Return a ``send`` that replaces the answer to a request of a wrong form (422): the framework's repeats
    all of its input."""
    hidden = False

    async def send_short(message: MutableMapping[str, Any]) -> None:
        nonlocal hidden
        if message["type"] == "http.response.start" and message["status"] == 422:
            hidden = True
            answer = _error(422, "http.malformed")
            await send({**message, "headers": answer.raw_headers})
            await send({"type": "http.response.body", "body": answer.body})
        elif not hidden:
            await send(message)

    return send_short


async def _send_in_parts(message: MutableMapping[str, Any], send: Callable) -> None:
    """Send a message of an answer, a large body in parts, so that a connection holds no more of it than its
    client takes; that there are too many requests, after a while."""
    if message.get("status") == 429:
        await asyncio.sleep(LATER)
    body = message.get("body", b"")
    for start in range(0, len(body) - PART_BYTES, PART_BYTES):
        await send(
            {"type": "http.response.body", "body": body[start : start + PART_BYTES], "more_body": True}
        )
    rest = (len(body) - 1) // PART_BYTES * PART_BYTES
    await send({**message, "body": body[rest:]} if rest > 0 else message)


def _sessions(request: Request) -> list[str]:
    """Return the sessions that a request names in its address."""
    heartbeat = HEARTBEAT.fullmatch(_path(request))
    return [heartbeat[1]] if heartbeat else request.query_params.getlist("session_hash")


def _path(request: Request) -> str:
    return request.scope["path"].removeprefix(request.scope.get("root_path", "").rstrip("/")) or "/"


def _is_address(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    """Return the headers of every response: no content sniffing, no referrer, no foreign frame."""
    framed = bool(os.environ.get("SPACE_ID")) or parse_qs(request.url.query).get("embed") == ["1"]
    headers = {
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "content-security-policy": POLICY + ("* file:" if framed else "'self'"),
        **({} if framed else {"x-frame-options": "SAMEORIGIN"}),
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _file(path: Path, request: Request) -> Response:
    kind = None if path.suffix in (".js", ".png") else "text/plain"  # a browser would download the others
    file = FileResponse(path, media_type=kind, stat_result=path.stat(), headers={"cache-control": "no-cache"})
    return Response(status_code=304) if request.headers.get("if-none-match") == file.headers["etag"] else file


def _error(status: int, code: str, **values: Any) -> Response:
    return _json_error(status, text(code, **values), code)


def _json_error(status: int, sentence: str, code: str) -> Response:
    return JSONResponse({"detail": sentence, "code": code}, status)
