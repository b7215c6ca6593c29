"""HTTP to a server that nobody vouches for: no redirect is followed, no proxy asked, and every answer is bounded in bytes and time.

An answer is read by a thread that may wait; whoever wants it to end closes the call from outside, which a watchdog does once its
time is over, so that a server that sends one byte a minute ends as surely as one that sends nothing.
"""
from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import Any, Iterator
from urllib.parse import urlsplit

_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]+")


class ServerError(ValueError):
    """A server cannot be used, or did not keep to its protocol; the message is one sentence for a person."""


@dataclass(frozen=True)
class Bounds:
    """Seconds: to connect, until an answer begins, of silence within it. Bytes: of a line, of a whole stream, of a page."""

    connect: float = 3.0
    begin: float = 30.0
    silent: float = 15.0
    line: int = 2**20
    stream: int = 16 * 2**20
    page: int = 4 * 2**20
    messages: int = 20_000


def plain(words: Any, most: int = 160) -> str:
    """A server's words as part of a sentence: one line, without control or direction characters, cut."""
    text = " ".join(_HIDDEN.sub(" ", words if isinstance(words, str) else str(words)).split())
    return text if len(text) <= most else text[:most] + "\u2026"


def read_url(url: Any) -> str:
    """A server's address without its last slash. Raises ServerError for all but http and https, and for one that holds a password."""
    try:
        parts = urlsplit(url.strip())
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        good = good and not (parts.username or parts.password or parts.query or parts.fragment) and url.strip().isprintable()
    except (ValueError, AttributeError):
        good = False
    if not good:
        raise ServerError("A server's address is http://host:port or https://host, maybe with a path, and holds no password.")
    return url.strip().rstrip("/")


class Call:
    """One request to a server. ``close`` may come from any thread and ends whatever waits."""

    def __init__(self, name: str, url: str, bounds: Bounds = Bounds(), key: str = "", seconds: float | None = None):
        self.name, self.bounds = name, bounds
        self._parts, self._key = urlsplit(url), key
        self._socket: socket.socket | None = None
        self._lock, self._closed = threading.Lock(), ""
        self._watchdog = threading.Timer(seconds, self.close, ("late",)) if seconds is not None else None
        if self._watchdog:
            self._watchdog.daemon = True
            self._watchdog.start()

    @property
    def closed(self) -> str:
        """Why it was closed: "late", "stopped", or empty."""
        return self._closed

    def close(self, why: str = "stopped") -> None:
        """End the call; the first reason stays."""
        with self._lock:
            self._closed = self._closed or why
            if self._watchdog:
                self._watchdog.cancel()
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                self._socket.close()

    def page(self, path: str) -> str:
        """A whole answer as text. Raises ServerError."""
        data = bytearray()
        for piece in self._answer("GET", path, None, None):
            data += piece
            if len(data) > self.bounds.page:
                raise ServerError(f"{self.name} sent a page of more than {_size(self.bounds.page)}.")
        return data.decode("utf-8", "replace")

    def lines(self, path: str, body: dict[str, Any]) -> Iterator[bytes]:
        """Post, and give the lines of the event stream that answers, without their ends. Raises ServerError."""
        rest, total = bytearray(), 0
        for piece in self._answer("POST", path, json.dumps(body).encode(), "text/event-stream"):
            total += len(piece)
            if total > self.bounds.stream:
                raise ServerError(f"{self.name} sent more than {_size(self.bounds.stream)}: cut there.")
            rest += piece
            *lines, last = bytes(rest).replace(b"\r\n", b"\n").split(b"\n") if b"\n" in piece else [bytes(rest)]
            rest = bytearray(last)
            if len(rest) > self.bounds.line or any(len(line) > self.bounds.line for line in lines):
                raise ServerError(f"{self.name} sent a line of more than {_size(self.bounds.line)}: cut there.")
            yield from lines
        if rest:
            yield bytes(rest)

    def _answer(self, method: str, path: str, body: bytes | None, kind: str | None) -> Iterator[bytes]:
        """The body of an answer, a piece at a time."""
        link = None
        try:
            link = self._open()
            headers = {"Accept": kind or "*/*", "Accept-Encoding": "identity", "Connection": "close"}
            headers |= {"Content-Type": "application/json"} if body else {}
            headers |= {"Authorization": f"Bearer {self._key}"} if self._key else {}
            link.request(method, self._parts.path.rstrip("/") + path, body, headers)
            answer = link.getresponse()
            self._check(answer, kind)
            link.sock.settimeout(self.bounds.silent) if link.sock else None
            while piece := answer.read1(65536):
                yield piece
            if answer.length:
                raise http.client.IncompleteRead(b"")
        except ServerError:
            raise
        except TimeoutError:
            raise ServerError(f"{self.name} {self._late() or 'did not answer: it was silent for too long'}.") from None
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise ServerError(f"{self.name} {self._late() or _trouble(error)}.") from None
        finally:
            if self._watchdog:
                self._watchdog.cancel()
            if link is not None:
                link.close()

    def _late(self) -> str:
        return {"late": "took longer than a run may take", "stopped": "was stopped"}.get(self._closed, "")

    def _open(self) -> http.client.HTTPConnection:
        parts = self._parts
        if parts.scheme == "https":
            context = ssl.create_default_context()
            link = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=self.bounds.connect, context=context)
        else:
            link = http.client.HTTPConnection(parts.hostname, parts.port, timeout=self.bounds.connect)
        link.connect()
        link.sock.settimeout(self.bounds.begin)
        with self._lock:
            self._socket = link.sock
            if self._closed:
                raise TimeoutError
        return link

    def _check(self, answer: http.client.HTTPResponse, kind: str | None) -> None:
        """Raises ServerError for anything but a good answer of this kind."""
        if 300 <= answer.status < 400:
            raise ServerError(f"{self.name} sends its callers elsewhere ({answer.status}); that is not followed.")
        found = (answer.getheader("Content-Type") or "").split(";")[0].strip().lower()
        if answer.status != 200 or (kind and found == "application/json"):
            words = _error_of(answer.read(65536)) if found == "application/json" else ""
            said = f": {words}" if words else f" ({plain(http.client.responses.get(answer.status, 'no known status'))})"
            raise ServerError(f"{self.name} refused with status {answer.status}{said}.".replace("..", "."))
        if (answer.getheader("Content-Encoding") or "identity").strip().lower() != "identity":
            raise ServerError(f"{self.name} sent a packed answer, which was not asked for.")
        if kind and found != kind:
            raise ServerError(f"{self.name} sent {plain(found, 40) or 'something unnamed'} instead of a stream of events.")


def _error_of(data: bytes) -> str:
    """The words of an error object, in the forms in which servers send one."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    return error_words(told) or ""


def error_words(told: Any) -> str | None:
    """What an error object says; None where it is none."""
    if not isinstance(told, dict):
        return None
    found = told.get("error") or (told if told.get("object") == "error" else None) or told.get("detail")
    if isinstance(found, dict):
        found = found.get("message") or found.get("type") or "it does not say why"
    return None if not found else plain(found if isinstance(found, str) else "it does not say why")


def _trouble(error: Exception) -> str:
    """What went wrong, in words of ours: a library's may hold what the server sent."""
    if isinstance(error, ConnectionRefusedError):
        return "cannot be reached: nothing listens at its address"
    if isinstance(error, socket.gaierror):
        return "cannot be reached: its name is not known here"
    if isinstance(error, ssl.SSLError):
        return "has no certificate that is trusted here"
    if isinstance(error, (http.client.IncompleteRead, ConnectionError, http.client.RemoteDisconnected)):
        return "closed the connection before its answer was whole"
    if isinstance(error, OSError):
        return "cannot be reached"
    return "does not speak HTTP as it should"


def _size(count: int) -> str:
    return f"{count >> 20} MB" if count >= 2**20 else f"{count >> 10} kB"
