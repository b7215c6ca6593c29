"""Time limits below HTTP: a connection whose request headers are not complete within ``HEADER_SECONDS`` is closed, and an address has
at most ``HALF_OPEN`` such connections."""
from __future__ import annotations

from collections import Counter
from typing import Any

HEADER_SECONDS = 10.0
HALF_OPEN = 32


def with_timeouts(protocol: type, half_open: Counter[str] | None = None) -> type:
    """Return a uvicorn HTTP protocol with these limits."""
    counts: Counter[str] = Counter() if half_open is None else half_open

    class TimedProtocol(protocol):
        _timer: Any = None
        _peer = ""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._peer = (transport.get_extra_info("peername") or ("",))[0]
            if counts[self._peer] >= HALF_OPEN:
                transport.abort()
            self._wait()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:  # a request's headers are complete
                self._arrived()
            elif self.cycle is None or self.cycle.response_complete:  # the beginning of the next request
                self._wait()

        def connection_lost(self, error: Exception | None) -> None:
            self._arrived()
            super().connection_lost(error)

        def _wait(self) -> None:
            if self._timer is None:
                counts[self._peer] += 1
                self._timer = self.loop.call_later(HEADER_SECONDS, self._close)

        def _arrived(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
                counts[self._peer] -= 1
                if counts[self._peer] <= 0:
                    del counts[self._peer]

        def _close(self) -> None:
            self._arrived()
            if not self.transport.is_closing():
                self.transport.close()

    return TimedProtocol
