"""HTTP client for untrusted servers: no redirects, no proxies, and limits on the bytes, pieces and time of
every answer.

A thread reads the answer and may block. Closing the call from another thread ends the read. A watchdog
closes it at the time limit, so that a server that sends one byte per minute is cut off, too.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .messages import ServerError, one_line

SMALL = 64  # a piece of fewer bytes is followed by a pause, so that a dripping server cannot keep a core busy
PAUSE = 0.002  # seconds of it
INFORMATIONAL = 8  # answers such as 100 Continue before the real one
TRAILERS = 64  # lines after the last chunk


@dataclass(frozen=True)
class Bounds:
    """Limits on what a server may send. connect, begin, silent: seconds to connect, until the answer
    begins, and between data; line, stream, page: maximum bytes of a line, of a stream and of a page;
    messages, lines: maximum number per stream; pieces: maximum number of text pieces per answer."""

    connect: float = 3.0
    begin: float = 30.0
    silent: float = 15.0
    line: int = 2**20
    stream: int = 16 * 2**20
    page: int = 4 * 2**20
    messages: int = 20_000
    lines: int = 200_000
    pieces: int = 80_000


def read_url(url: Any) -> str:
    """Check a server's address; return it without a trailing slash. Raises ServerError for schemes other
    than http and https, and for an address with a password."""
    try:
        parts = urlsplit(url.strip())
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        good = (
            good
            and not (parts.username or parts.password or parts.query or parts.fragment)
            and url.strip().isprintable()
        )
    except (ValueError, AttributeError):
        good = False
    if not good:
        raise ServerError("url")
    return url.strip().rstrip("/")


class _Response(http.client.HTTPResponse):
    """A response with at most ``INFORMATIONAL`` 1xx responses before it and ``TRAILERS`` lines after its
    last chunk; the standard library reads either without limit."""

    def _read_status(self) -> tuple[str, int, str]:
        self._statuses = getattr(self, "_statuses", 0) + 1
        if self._statuses > INFORMATIONAL:
            raise http.client.BadStatusLine("informational responses without end")
        return super()._read_status()  # pyright: ignore[reportAttributeAccessIssue] - not in the stubs

    def _read_and_discard_trailer(self) -> None:
        for _ in range(TRAILERS):
            if self.fp.readline(2**16).strip(b"\r\n") == b"":
                return
        raise http.client.HTTPException("trailers without end")


HIDDEN = b"(key)"


class Call:
    """One request to a server. seconds: time limit of the whole call. ``close`` may be called from any
    thread and ends a blocked read."""

    def __init__(
        self, name: str, url: str, bounds: Bounds = Bounds(), key: str = "", seconds: float | None = None
    ):
        self.name, self.bounds = name, bounds
        self._parts, self._key = urlsplit(url), key
        self._socket: socket.socket | None = None
        self._lock, self._closed = threading.Lock(), ""
        self._watchdog = self._timer(seconds, "late") if seconds is not None else None

    def _timer(self, seconds: float, why: str) -> threading.Timer:
        timer = threading.Timer(max(0.0, seconds), self.close, (why,))
        timer.daemon = True
        timer.start()
        return timer

    @property
    def closed(self) -> str:
        """Why the call was closed: "late", "silent" or "stopped"; empty if it was not."""
        return self._closed

    def close(self, why: str = "stopped") -> None:
        """End the call. If it is closed several times, the first reason is kept."""
        with self._lock:
            self._closed = self._closed or why
            if self._watchdog:
                self._watchdog.cancel()
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                self._socket.close()

    def page(self, path: str) -> str:
        """Send a GET request; return the whole answer as text. Raises ServerError."""
        data = bytearray()
        for piece in self._answer("GET", path, None, None):
            data += piece
            if len(data) > self.bounds.page:
                raise ServerError("page_size", name=self.name, size=_size(self.bounds.page))
        return self._without_key(bytes(data)).decode("utf-8", "replace")

    def _without_key(self, data: bytes) -> bytes:
        """Return what a server sent without the owner's key, which a server may repeat in an error."""
        return data.replace(self._key.encode(), HIDDEN) if self._key else data

    def lines(self, path: str, body: dict[str, Any]) -> Iterator[bytes]:
        """Send a POST request; yield the lines of the event stream without line ends. Raises ServerError."""
        rest = bytearray()
        total = 0
        count = 0
        for piece in self._answer("POST", path, json.dumps(body).encode(), "text/event-stream"):
            total += len(piece)
            if total > self.bounds.stream:
                raise ServerError("stream_size", name=self.name, size=_size(self.bounds.stream))
            rest += piece
            lines: list[bytes] = []
            if b"\n" in piece:
                *lines, last = bytes(rest).replace(b"\r\n", b"\n").split(b"\n")
                rest = bytearray(last)
            if len(rest) > self.bounds.line or any(len(line) > self.bounds.line for line in lines):
                raise ServerError("line_size", name=self.name, size=_size(self.bounds.line))
            count += len(lines)
            if count > self.bounds.lines:
                raise ServerError("lines", name=self.name, count=self.bounds.lines)
            yield from map(self._without_key, lines)
        if rest:
            yield self._without_key(bytes(rest))

    def _answer(self, method: str, path: str, body: bytes | None, kind: str | None) -> Iterator[bytes]:
        """Yield the body of an answer piece by piece."""
        link, begin = None, self._timer(self.bounds.connect + self.bounds.begin, "silent")
        try:
            link = self._open()
            headers = {"Accept": kind or "*/*", "Accept-Encoding": "identity", "Connection": "close"}
            headers |= {"Content-Type": "application/json"} if body else {}
            headers |= {"Authorization": f"Bearer {self._key}"} if self._key else {}
            link.request(method, self._parts.path.rstrip("/") + path, body, headers)
            answer = link.getresponse()
            begin.cancel()  # the header is complete: a server that sends it byte by byte got no more time than one that sends nothing
            self._check(answer, kind)
            link.sock.settimeout(self.bounds.silent) if link.sock else None
            count = 0
            while piece := answer.read1(65536):
                count += 1
                if count > self.bounds.pieces:
                    raise ServerError("pieces", name=self.name, count=self.bounds.pieces)
                yield piece
                if len(piece) < SMALL:
                    time.sleep(PAUSE)
            if answer.length:
                raise http.client.IncompleteRead(b"")
        except ServerError:
            raise
        except TimeoutError:
            raise ServerError(self._closed or "silent", name=self.name) from None
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise ServerError(self._closed or _trouble(error), name=self.name) from None
        finally:
            begin.cancel()
            if self._watchdog:
                self._watchdog.cancel()
            if link is not None:
                link.close()

    def _open(self) -> http.client.HTTPConnection:
        parts, host = self._parts, self._parts.hostname or ""  # checked before
        if parts.scheme == "https":
            context = ssl.create_default_context()
            link = http.client.HTTPSConnection(host, parts.port, timeout=self.bounds.connect, context=context)
        else:
            link = http.client.HTTPConnection(host, parts.port, timeout=self.bounds.connect)
        link.response_class = _Response
        link.connect()
        link.sock.settimeout(self.bounds.begin)
        with self._lock:
            self._socket = link.sock
            if self._closed:
                raise TimeoutError
        return link

    def _check(self, answer: http.client.HTTPResponse, kind: str | None) -> None:
        """Raise ServerError unless the answer is successful and of the expected content type."""
        if 300 <= answer.status < 400:
            raise ServerError("redirect", name=self.name, status=answer.status)
        found = (answer.getheader("Content-Type") or "").split(";")[0].strip().lower()
        if answer.status != 200 or (kind and found == "application/json"):
            words = _error_of(self._without_key(answer.read(65536))) if found == "application/json" else ""
            why = (
                f": {words}"
                if words
                else f" ({one_line(http.client.responses.get(answer.status, 'no known status'))})"
            )
            raise ServerError("status", name=self.name, status=answer.status, why=why)
        if (answer.getheader("Content-Encoding") or "identity").strip().lower() != "identity":
            raise ServerError("compressed", name=self.name)
        if kind and found != kind:
            raise ServerError("type", name=self.name, type=one_line(found, 40) or "an unnamed type")


def _error_of(data: bytes) -> str:
    """Return the text of an error object, in any of the forms that servers send."""
    try:
        return error_words(json.loads(data)) or ""
    except (ValueError, RecursionError):
        return ""


def error_words(message: Any) -> str | None:
    """Return the text of an error object; None if the message is not one."""
    if not isinstance(message, dict):
        return None
    found = (
        message.get("error")
        or (message if message.get("object") == "error" else None)
        or message.get("detail")
    )
    # FastAPI lists the wrong fields.
    if isinstance(found, list) and found and isinstance(found[0], dict):
        where = found[0].get("loc")
        place = ".".join(map(str, where[1:])) if isinstance(where, list) else ""
        found = ": ".join(part for part in (place, found[0].get("msg")) if part and isinstance(part, str))
    if isinstance(found, dict):
        found = found.get("message") or found.get("type") or "it does not say why"
    return None if not found else one_line(found if isinstance(found, str) else "it does not say why")


def _trouble(error: Exception) -> str:
    """Return the identifier of a failure; a library's message may contain what the server sent, so it is
    not shown."""
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, socket.gaierror):
        return "name"
    if isinstance(error, ssl.SSLError):
        return "certificate"
    if isinstance(error, (http.client.IncompleteRead, ConnectionError, http.client.RemoteDisconnected)):
        return "closed"
    return "unreachable" if isinstance(error, OSError) else "http"


def _size(count: int) -> str:
    return f"{count >> 20} MB" if count >= 2**20 else f"{count >> 10} kB"
