"""Limits of connections: seconds, number, and bytes that are written and not taken.

A connection whose request is not complete within ``ARRIVAL_SECONDS`` is closed, and so is one that sends more
than ``REST_BYTES`` of a request's body after the answer. An address may have at most ``HALF_OPEN`` incomplete
requests; one more closes its oldest, so that other visitors with the same address are still served. Bytes
that have arrived are read before a connection is closed for want of them: time in which the server stands
still or does not read is not its client's. A connection that takes less than ``DRAIN_BYTES`` of its answer in
``DRAIN_SECONDS`` is aborted. All addresses together have so few connections that a socket and a file for each
are fewer than the process may have open: beyond that, the address with the most loses its oldest."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ..engine.log_lines import limit_repeats
from .http_guard import REST_BYTES, client_key, trusted_proxies

try:
    import resource
except ImportError:  # Windows: no limit of open files to read
    resource = None

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as _Protocol
else:
    _Protocol = object  # the class is mixed into the protocol that uvicorn has chosen

ARRIVAL_SECONDS = 15.0  # for headers and body
TURN = 0.001  # seconds to the next turn of the loop, after its sockets
LATE = 1.0  # seconds by which a timer is late when the server stood still
HALF_OPEN = 32
CONNECTIONS = 256  # of an address: a browser opens six, and a classroom shares an address
ALL_CONNECTIONS = 4096
# Open files of a connection: its socket, and the stored run that it may be reading. When files run out, asyncio
# tries to accept 2,048 times in one step.
FILES = 2
SPARE_FILES = 96  # open files left for everything else
BUFFER_BYTES = 32 * 2**10  # of an answer that a connection may hold unsent before its writer waits
DRAIN_SECONDS = 30.0
DRAIN_BYTES = 16 * 2**10
WATCH = 5.0  # seconds between two searches for connections that take nothing


def with_timeouts(protocol: type, half_open: int = HALF_OPEN) -> type:
    """Return a subclass of a uvicorn HTTP protocol with these limits. half_open: incomplete requests of an
    address."""
    limit_repeats()
    own = {
        "_waiting": {},
        "_open": {},
        "_watcher": None,
        "_crowded": set(),
        "_most": connections_in_all(),
        "_half_open": half_open,
    }
    return type("TimedProtocol", (_Timed, protocol), own | {"_proxies": trusted_proxies()})


def connections_in_all() -> int:
    """Return how many connections may be open; the process's limit of open files is raised for them as far
    as the system allows it."""
    if resource is None:
        return ALL_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES * ALL_CONNECTIONS + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else max(soft, min(wanted, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return (
        ALL_CONNECTIONS
        if soft == resource.RLIM_INFINITY
        else max(8, min(ALL_CONNECTIONS, (soft - SPARE_FILES) // FILES))
    )


class _CountedTransport:
    """A transport that counts the bytes that its client has taken."""

    def __init__(self, transport: Any):
        self._transport = transport
        self._written = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: Any) -> None:
        self._written += len(data)
        self._transport.write(data)

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    @property
    def taken(self) -> int:
        return self._written - self.unsent


class _Timed(_Protocol):
    """Mixin of uvicorn's protocol: ``cycle`` is the request being answered, ``loop`` and ``transport`` are
    asyncio's."""

    _waiting: dict[
        str, OrderedDict[Any, None]
    ]  # address -> its connections without a complete request, oldest first
    _open: dict[str, OrderedDict[Any, None]]  # address -> its connections, oldest first
    _crowded: set[str]  # addresses whose incomplete requests are to be counted
    _most: int  # connections of all addresses
    _half_open: int  # incomplete requests of an address
    _proxies: frozenset[str]  # whose connections are of many clients
    _watcher: Any
    _timer: Any = None
    _due = 0.0  # when the timer ends, on the loop's clock
    _peer = ""
    _rest = 0  # bytes of the body since the request was answered
    _looked = (0, 0.0)  # bytes taken, and when that was seen

    def connection_made(self, transport: Any) -> None:
        counted = _CountedTransport(transport)
        transport.set_write_buffer_limits(high=BUFFER_BYTES)
        super().connection_made(counted)  # type: ignore[arg-type]
        self._peer = client_key((transport.get_extra_info("peername") or ("",))[0])
        kind: Any = type(self)
        if kind._watcher is None:
            kind._watcher = asyncio.ensure_future(_watch(kind))
        self._open.setdefault(self._peer, OrderedDict())[self] = None
        self._make_room()
        if not transport.is_closing():
            self._wait()

    def _make_room(self) -> None:
        """Close a connection if there are too many: an idle one, or one with an incomplete request, or this one
        (beyond the limit of its address) or the oldest (of the address that has the most)."""
        mine = self._open[self._peer]
        if len(mine) > CONNECTIONS and not {"*", self._peer} & self._proxies:
            self._least_needed(self._peer, self)._abort()
        if sum(map(len, self._open.values())) > self._most:
            most = max(self._open, key=lambda peer: len(self._open[peer]))
            self._least_needed(most, next(iter(self._open[most])))._abort()

    def _least_needed(self, peer: str, other: Any) -> Any:
        """Return an address's oldest idle connection, else its oldest with an incomplete request, else other."""
        idle = next((one for one in self._open[peer] if one._idle()), None)
        return idle or next(iter(self._waiting.get(peer, ())), other)

    def _idle(self) -> bool:
        """Return whether the connection has no request and nothing to send."""
        answered = self.cycle is not None and self.cycle.response_complete
        return answered and not self.transport.unsent  # type: ignore[attr-defined]

    def _abort(self) -> None:
        """Close the connection and drop what it has not taken."""
        self._arrived()
        self._forget()
        self.transport.abort()

    def _forget(self) -> None:
        mine = self._open.get(self._peer, OrderedDict())
        mine.pop(self, None)
        if not mine:
            self._open.pop(self._peer, None)

    def _look(self, now: float) -> None:
        """Abort the connection if its client does not take its answer."""
        transport: Any = self.transport
        taken, since = self._looked
        if not transport.unsent or transport.taken - taken >= DRAIN_BYTES or not since:
            self._looked = transport.taken, now
        elif now - since > DRAIN_SECONDS:
            self._abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        answered = self.cycle is not None and self.cycle.response_complete and self.cycle.more_body
        self._rest = self._rest + len(data) if answered else 0
        if self._rest > REST_BYTES:
            self._close()
        elif self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            self._wait()
        else:
            self._arrived()

    def connection_lost(self, error: Exception | None) -> None:
        self._arrived()
        self._forget()
        super().connection_lost(error)

    def _wait(self) -> None:
        if self._timer is not None:
            return
        mine = self._waiting.setdefault(self._peer, OrderedDict())
        mine[self] = None
        self._set_timer()
        if len(mine) > self._half_open and self._peer not in self._crowded:
            self._crowded.add(self._peer)
            self.loop.call_later(TURN, self._thin_out)  # when what has arrived by now is read

    def _set_timer(self) -> None:
        self._due = self.loop.time() + ARRIVAL_SECONDS
        self._timer = self.loop.call_at(self._due, self._expire)

    def _expire(self) -> None:
        """Close the connection, unless it was the server that did not read."""
        if self.flow.read_paused or self.loop.time() - self._due > LATE:
            self._set_timer()
        else:
            self._close()

    def _thin_out(self) -> None:
        """Close the oldest incomplete requests of this connection's address beyond their limit."""
        self._crowded.discard(self._peer)
        mine = self._waiting.get(self._peer, OrderedDict())
        for one in list(mine)[: max(0, len(mine) - self._half_open)]:
            one._close()

    def _arrived(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        mine = self._waiting.get(self._peer, OrderedDict())
        mine.pop(self, None)
        if not mine:
            self._waiting.pop(self._peer, None)

    def _close(self) -> None:
        self._arrived()
        if not self.transport.is_closing():
            self.transport.close()
        if not self.transport.unsent:  # type: ignore[attr-defined]
            self._forget()  # else it counts until its client has taken the rest


async def _watch(kind: Any) -> None:
    """Look at all connections every WATCH seconds, until the last one is closed."""
    try:
        while kind._open:
            await asyncio.sleep(WATCH)
            now = time.monotonic()
            for one in [one for mine in kind._open.values() for one in mine]:
                one._look(now)
    finally:
        kind._watcher = None
