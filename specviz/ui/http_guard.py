"""The door: which of Gradio's routes are open, under which names this server answers, and what every answer says of itself.

Gradio brings routes that this page has no use for (uploads, a proxy, files, monitoring). Here everything is closed that is not
named in OPEN, so a route of a later Gradio is closed until somebody opens it.
"""
from __future__ import annotations

import ipaddress
import json
import logging
import os
import re
import socket
from pathlib import Path
from typing import Any, Callable
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from .limits import Visitor

log = logging.getLogger(__name__)

OWN = "/own/"  # the page's own files by name: no path of this machine is told to anybody
OPEN = re.compile(r"/|/config/?|/theme\.css|/favicon\.ico|/robots\.txt|/manifest\.json|/(assets|static|svelte)/[^?]+"
                  r"|/gradio_api/(info/?|openapi\.json|startup-events|theme\.css|app_id/?|cancel|reset/?|queue/(join|data)"
                  r"|heartbeat/[^/]+|(run|api)/[^/]+/?|call/(v2/)?[^/]+(/[^/]*)?)")
CALLED = re.compile(r"/gradio_api/call/([^/]+)/?")
LARGEST = 2 * 2**20  # bytes of a request
# Gradio's page has scripts of its own in the text of the page and makes functions of its templates: both must be let.
POLICY = ("default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
          "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
          "object-src 'none'; base-uri 'self'; form-action 'none'; frame-ancestors ")


class _TooLarge(Exception):
    pass


class Door:
    """ASGI middleware. ``takes``: names of the endpoints for programs and what each takes, in order; ``own``: name -> file."""

    def __init__(self, app: Any, takes: dict[str, list[str]], own: dict[str, Path]):
        self._app, self._takes, self._own = app, takes, own
        self._hosts = hosts()

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request, begun = Request(scope), False

        async def told(message: dict) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *_headers(request)]
            await send(message)

        try:
            early = self._early(request) or await self._called(request, received := _Bounded(receive))
            await (early(scope, receive, told) if early else self._app(scope, received, told))
        except _TooLarge:
            await _said(413, f"A request holds at most {LARGEST >> 20} MB.")(scope, receive, told)
        except Exception as error:
            if begun and not isinstance(error, RuntimeError):
                raise
            log.warning("%s %s was refused: %s", request.method, _path(request), type(error).__name__)
            if begun:  # a stream that nobody has ordered: Gradio says so in it, and then fails
                await send({"type": "http.response.body", "body": b""})
            else:
                unknown = isinstance(error, (KeyError, LookupError)) or type(error).__name__ == "FnIndexInferError"
                await (_said(404, self._names()) if unknown else _said(400, "This request is none that the page makes."))(
                    scope, receive, told)

    def _early(self, request: Request) -> Response | None:
        """The answer to what goes no further."""
        path = _path(request)
        if not self._known(request.headers.get("host", "")):
            return _said(421, "This server does not answer under that name: whoever runs it may add the name to SPECVIZ_HOSTS.")
        if path.startswith(OWN):
            file = self._own.get(path[len(OWN):])
            return _file(file, request) if file else _said(404, "The page has no such file.")
        if not OPEN.fullmatch(path):
            return _said(404, "There is nothing here: the page is at /, and programs use /run, /compare and /methods.")
        if request.headers.get("content-length", "0").isdigit() and int(request.headers.get("content-length", "0")) > LARGEST:
            raise _TooLarge
        return None

    async def _called(self, request: Request, body: _Bounded) -> Response | None:
        """Why an endpoint for programs cannot be called like this; None where it can, or where something else is asked for."""
        called = CALLED.fullmatch(_path(request)) if request.method == "POST" else None
        if called is None:
            return None
        takes = self._takes.get(called[1])
        if takes is None:
            return _said(404, self._names())
        try:
            data = json.loads(await body.whole())["data"]
            fits = isinstance(data, list) and len(data) == len(takes)
        except (ValueError, TypeError, LookupError, RecursionError):
            fits = False
        return None if fits else _said(422, f'/{called[1]} takes {{"data": [{", ".join(takes)}]}}.')

    def _names(self) -> str:
        return f"There is no such endpoint; there are {', '.join('/' + name for name in self._takes)}."

    def _known(self, host: str) -> bool:
        """A page of a foreign name that points here may not read this server; by its number nobody else's name can be used."""
        try:
            name = urlsplit("//" + host).hostname or ""
        except ValueError:
            name = ""
        return "*" in self._hosts or name in self._hosts or name.endswith(".localhost") or _number(name)


class _Bounded:
    """``receive`` that counts, and can give back what was read ahead."""

    def __init__(self, receive: Callable):
        self._receive, self._seen, self._ahead = receive, 0, []

    async def __call__(self) -> dict:
        return self._ahead.pop(0) if self._ahead else await self._next()

    async def _next(self) -> dict:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > LARGEST:
            raise _TooLarge
        return message

    async def whole(self) -> bytes:
        """All of the body, which is given once more to whoever receives next."""
        parts = []
        while not parts or parts[-1].get("more_body"):
            parts.append(await self._next())
        self._ahead = parts
        return b"".join(part.get("body", b"") for part in parts)


def hosts() -> frozenset[str]:
    """Names under which this server answers. A Space's own proxy has looked at the name already."""
    if os.environ.get("SPACE_ID"):
        return frozenset("*")
    named = os.environ.get("SPECVIZ_HOSTS", "").replace(",", " ").lower().split()
    root = urlsplit(os.environ.get("GRADIO_ROOT_PATH", "")).hostname or ""
    return frozenset({"localhost", socket.gethostname().lower(), *named, *filter(None, [root])})


def visitor(request: Any) -> Visitor:
    """Who sends a request to a listener, and what lies unread for it."""
    app, client = getattr(request, "app", None), getattr(request, "client", None)
    if app is None or client is None:
        return Visitor()
    session, waiting = request.session_hash, app.get_blocks()._queue.pending_messages_per_session

    def forget() -> None:
        messages = waiting.get(session)
        while messages is not None and not messages.empty():
            messages.get_nowait()

    return Visitor(_address(request, client.host), lambda: waiting[session].qsize() if session in waiting else 0, forget)


def _address(request: Any, peer: str) -> str:
    """On a Space everybody comes through its proxy, which appends whom it speaks for."""
    behind = request.headers.get("x-forwarded-for", "") if os.environ.get("SPACE_ID") else ""
    return behind.rpartition(",")[2].strip()[:64] or peer


def _path(request: Request) -> str:
    return request.scope["path"].removeprefix(request.scope.get("root_path", "").rstrip("/")) or "/"


def _number(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    """What every answer says: be no other type than told, tell nobody where you came from, stand in no foreign frame."""
    framed = bool(os.environ.get("SPACE_ID")) or parse_qs(request.url.query).get("embed") == ["1"]
    told = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
            "content-security-policy": POLICY + ("*" if framed else "'self'"),
            **({} if framed else {"x-frame-options": "SAMEORIGIN"})}
    return [(name.encode(), value.encode()) for name, value in told.items()]


def _file(path: Path, request: Request) -> Response:
    file = FileResponse(path, stat_result=os.stat(path), headers={"cache-control": "no-cache"})
    return Response(status_code=304) if request.headers.get("if-none-match") == file.headers["etag"] else file


def _said(status: int, sentence: str) -> Response:
    return JSONResponse({"detail": sentence}, status)
