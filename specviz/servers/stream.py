"""One request to a server as the events of a lane. Each message counts as a round, with times measured by
the client."""

from __future__ import annotations

import ipaddress
import logging
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from ..core.note_kinds import check
from ..trace.events import Checked, Event, Failed, Finished, Noted, Prefilled, Received, Started, TextEmitted
from ..zoo.registry import Server
from .dialects import ENGINES, FAMILY, KEY, Message
from .events import messages
from .figures import ServerFigures, read_metrics
from .http_client import Bounds, Call, read_url
from .messages import DOUBTS, ServerError, one_line

log = logging.getLogger(__name__)

PIECE = 3000  # bytes of a piece of text in a trace
TEXT = 2 * 2**20 - PIECE  # maximum bytes of text of a lane
PAGE_SECONDS = 2.0  # for a page next to the stream
FINISH = {"stop": "stop", "length": "length", "tool_calls": "stop", "eos": "stop"}


class Stream:
    """A server lane: one request as a stream of events. ``events`` may be iterated once, in any thread;
    ``close`` ends it from another thread. deadline: seconds of wall clock."""

    def __init__(
        self,
        server: Server,
        conversation: Sequence[dict[str, str]],
        max_new_tokens: int,
        sampling: Any,
        deadline: float | None = None,
        bounds: Bounds = Bounds(),
        mode: str = "live",
    ):
        self.server = server
        self.engine = ENGINES[server.engine]
        self.bounds = bounds
        self.url = read_url(server.url)
        self.wanted = max_new_tokens
        self.sampling = sampling
        self.mode = mode
        self.conversation = [{"role": m["role"], "content": m["content"]} for m in conversation]
        self.run_id, self.figures = uuid.uuid4().hex[:12], ServerFigures(self.engine)
        self._ends_at = None if deadline is None else time.monotonic() + deadline
        self._call: Call | None = None
        self._lock, self._why = threading.Lock(), ""
        self._began = 0.0
        self._first = 0.0
        self._last = 0.0
        self._written = 0
        self.model = server.model

    @property
    def here(self) -> bool:
        """Whether the server runs on this machine, so that local work slows it down."""
        return is_loopback(urlsplit(self.url).hostname or "")

    def close(self, why: str = "stopped") -> None:
        """End the stream; what was received is kept."""
        with self._lock:
            self._why = self._why or why
            if self._call:
                self._call.close(self._why)

    def events(self) -> Iterator[Event]:
        """Yield Started, Prefilled, then Received, TextEmitted and Noted for each message, finally Finished
        or Failed. Never raises."""
        yield Started(self._header())
        finish = ""
        why = ""
        facts = {}
        before: dict[str, float] = {}
        try:
            self.model = self.model or self._first_model()
            before = self._metrics()
            for event in self._streamed():
                if isinstance(event, str):
                    finish = event
                else:
                    yield event
        except ServerError as error:
            why = str(error)
        if self._ended_by_us():
            finish, why = {"late": "deadline"}.get(self._ended_by_us(), "stopped"), ""
        after = self._metrics() if before and not self._why else {}
        facts = self.figures.facts(before, after)
        yield Checked("told", facts)
        totals = self._totals(facts["facts"])
        yield Failed(why, totals) if why else Finished(finish, totals)

    def _ended_by_us(self) -> str:
        return self._why or (self._call.closed if self._call else "")

    def _streamed(self) -> Iterator[Event | str]:
        """Yield the events of the answer, and finally the finish reason, in the trace's words."""
        call = self._open()
        self._began = time.perf_counter()
        finish, number = "", 0
        for raw in messages(
            self.server.name, call.lines("/chat/completions", self._body()), self.bounds.messages
        ):
            at = time.perf_counter() - self._began
            message = self.engine.read(raw)
            size = self.figures.add(message)
            self._check_model(message)
            if size:
                if not number:
                    self._first = at
                    yield Prefilled(0.0, at, self.figures.asked or 0)
                self._last = at
                yield from self._round(number, at, message)
                number += 1
            finish = FINISH.get(message.finish, "stop") if message.finish else finish
            if self.figures.tokens > 2 * self.wanted + 16 or self._written > TEXT:
                raise ServerError("too_much", name=self.server.name)
        if not finish and not self._ended_by_us():
            raise ServerError("unfinished", name=self.server.name)
        if not number:
            raise ServerError("empty", name=self.server.name)
        yield finish

    def _round(self, number: int, at: float, message: Message) -> Iterator[Event]:
        ids = message.ids or (-1,)
        yield Received(number, at, ids)
        data = message.text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
        parts = [data[i : i + PIECE] for i in range(0, len(data), PIECE)] or [b""]
        pieces = [
            *((token, b"") for token in ids[:-1]),
            *((-1, part) for part in parts[:-1]),
            (ids[-1], parts[-1]),
        ]
        emitted = []
        for (
            token,
            part,
        ) in (
            pieces
        ):  # the end of each token's text within a message is unknown: all text is assigned to the last token
            emitted.append((token, part, self._written, self._written + len(part)))
            self._written += len(part)
        yield TextEmitted(number, tuple(emitted))
        drafts = message.drafts
        counts = {} if drafts is None else {"drafted": drafts.drafted, "accepted": drafts.accepted}
        yield Noted(
            number, *self.note("message", tokens=len(ids) if message.ids else None, bytes=len(data), **counts)
        )

    @staticmethod
    def note(kind: str, **data: Any) -> tuple[str, dict[str, Any]]:
        """Return a note for an event, checked against its declaration in core.note_kinds. Raises ValueError
        for an undeclared kind."""
        check(kind, data)
        return kind, data

    def _check_model(self, message: Message) -> None:
        if message.model and self.model and message.model != self.model:
            self.figures.doubt(
                DOUBTS["model"].format(found=one_line(message.model, 60), asked=one_line(self.model, 60))
            )

    def _open(self, most: float | None = None) -> Call:
        """Open a call within the run's remaining time. Raises ServerError if none is left."""
        left = None if self._ends_at is None else self._ends_at - time.monotonic()
        with self._lock:
            if self._why or (left is not None and left <= 0):
                self._why = self._why or "late"
                raise ServerError("ended")
            seconds = min((s for s in (left, most) if s is not None), default=None)
            key = self.server.secret()
            call = Call(self.server.name, _base(self.url), self.bounds, key, seconds)
            if most is None:
                self._call = call
            return call

    def _first_model(self) -> str:
        """Return the first model that the server lists."""
        from json import loads

        try:
            found = loads(self._open(self.bounds.connect + PAGE_SECONDS).page("/models"))["data"][0]["id"]
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            if isinstance(error, ServerError):
                raise
            found = None
        if not isinstance(found, str) or not found or len(found) > 400:
            raise ServerError("no_model", name=self.server.name)
        return found

    def _metrics(self) -> dict[str, float]:
        """Return the figures of the server's /metrics page; empty without one."""
        if not (self.engine.counters or self.engine.gauges):
            return {}
        try:
            with self._lock:
                left = (
                    PAGE_SECONDS
                    if self._ends_at is None
                    else min(PAGE_SECONDS, self._ends_at - time.monotonic())
                )
            page = Call(
                self.server.name,
                self.url.removesuffix("/v1"),
                self.bounds,
                self.server.secret(),
                max(0.0, left),
            ).page("/metrics")
        except ServerError as error:
            log.info("the metrics of %s are not read: %s", self.server.name, error)
            return {}
        return read_metrics(self.engine, page)

    def _body(self) -> dict[str, Any]:
        sampling = self.sampling
        return {
            "model": self.model,
            "messages": self.conversation,
            "max_tokens": self.wanted,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.engine.ask(sampling),
        }

    def _totals(self, facts: list[dict[str, Any]]) -> dict[str, Any]:
        known = {fact["name"]: fact["value"] for fact in facts if fact["badge"] != "unknown"}
        names = {
            "tokens": "tokens",
            "passes": "rounds",
            "drafted": "drafted",
            "accepted": "accepted",
            "by_position": "by_position",
        }
        return {
            "seconds": self._last - self._first,
            "prefill_seconds": self._first,
            "text_bytes": self._written,
            **{there: known[here] for here, there in names.items() if here in known},
        }

    def _header(self) -> dict[str, Any]:
        server, (*earlier, last) = self.server, self.conversation
        return {
            "schema": "specviz-trace/1",
            "run_id": self.run_id,
            "mode": self.mode,
            "clock": "client",
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "method": {
                "key": KEY + server.name,
                "title": server.name,
                "family": FAMILY,
                "exactness": "",
                "paper": "",
                "summary": f"{self.engine.title} on a server of its own, seen from outside.",
            },
            "knobs": {},
            "prompt": {
                "text": last["content"],
                "ids": [],
                "turns": [{"role": m["role"], "text": m["content"]} for m in earlier],
            },
            "sampling": asdict(self.sampling),
            "max_new_tokens": self.wanted,
            "target": {"name": server.model or server.name, "engine": self.engine.title},
            "draft": None,
            "tokenizer": "",
            "env": {
                "machine": f"a server with {self.engine.title}" + (" on this machine" if self.here else "")
            },
            "top_k_saved": 0,
            "baseline_run_id": None,
            "deterministic": False,
        }


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _base(url: str) -> str:
    """Return the base path of the protocol."""
    return url if url.endswith("/v1") else url + "/v1"
