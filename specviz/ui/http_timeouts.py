"""Time limits for incoming connections. A connection whose request is not complete within
``ARRIVAL_SECONDS`` is closed, and so is one that sends more than ``REST_BYTES`` of a request's body after
the answer. An address may have at most ``HALF_OPEN`` incomplete requests; one more closes its oldest, so
that other visitors with the same address are still served."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from .http_guard import REST_BYTES, client_key

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as _Protocol
else:
    _Protocol = object  # the class is mixed into the protocol that uvicorn has chosen

ARRIVAL_SECONDS = 15.0  # for headers and body
HALF_OPEN = 32


def with_timeouts(protocol: type) -> type:
    """Return a subclass of a uvicorn HTTP protocol with these limits."""
    return type("TimedProtocol", (_Timed, protocol), {"_waiting": {}})


class _Timed(_Protocol):
    """Mixin of uvicorn's protocol: ``cycle`` is the request being answered, ``loop`` and ``transport`` are
    asyncio's."""

    _waiting: dict[
        str, OrderedDict[Any, None]
    ]  # address -> its connections without a complete request, oldest first
    _timer: Any = None
    _peer = ""
    _rest = 0  # bytes of the body since the request was answered

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._peer = client_key((transport.get_extra_info("peername") or ("",))[0])
        self._wait()

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
        super().connection_lost(error)

    def _wait(self) -> None:
        if self._timer is not None:
            return
        mine = self._waiting.setdefault(self._peer, OrderedDict())
        mine[self] = None
        self._timer = self.loop.call_later(ARRIVAL_SECONDS, self._close)
        if len(mine) > HALF_OPEN:
            next(iter(mine))._close()

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
