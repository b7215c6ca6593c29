"""The queue for the engine: one run at a time, fair between client addresses. A run that no longer responds
loses its turn."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .messages import Refused

RUN_SECONDS = 60.0
GRACE = 15.0  # seconds beyond its own deadline before a silent engine is given up
LOOK = 1.0  # most seconds counted between two looks: a process that stands still has neither runs nor readers
WAITING = 20
OPEN_RUNS = 8  # of one client address at a time, waiting ones too: a classroom shares an address
REMEMBERED = 256  # addresses whose last turn is known
BUSY_SHARE = 2  # largest number of tickets of an address while more than half of the queue is taken


@dataclass(frozen=True)
class Visitor:
    """The sender of a request. address: the client's; unread(): its number of unread messages; forget():
    drops them."""

    address: str = ""
    unread: Callable[[], int] = lambda: 0
    forget: Callable[[], None] = lambda: None


@dataclass(eq=False)
class Ticket:
    """A place in the queue. active: time of the last activity of the run that holds it; None while it
    waits. batch: runs of the same batch may be active together."""

    address: str
    number: int
    active: float | None = None
    batch: str = ""


@dataclass
class RunQueue:
    """One run at a time on one accelerator. Addresses take turns: the second run of an address comes after
    the first run of every other address, and of two addresses that wait the one whose last run began longer ago
    comes first.

    ``waiting``: number of places after the active run; an address without a place gets one even if all are
    taken, up to twice as many. Runs of one batch share the accelerator, at most ``together`` of them, and the
    first of every other address up to twice as many, unless another run waits before them. A run without
    activity for ``silence`` seconds loses its place."""

    waiting: int = WAITING
    open_runs: int = OPEN_RUNS
    silence: float = RUN_SECONDS + GRACE
    together: int = 8
    _open: Counter[str] = field(default_factory=Counter)
    _tickets: list[Ticket] = field(default_factory=list)
    _number: int = 0
    _looked: float = field(default_factory=time.monotonic)
    _begun: dict[str, int] = field(default_factory=dict)  # address -> number of the run that began last
    _lock: Any = field(default_factory=threading.Lock)

    def enter(self, address: str = "", batch: str = "") -> Ticket:
        """Join the queue; return a ticket. Raises Refused if the queue is full, or if this address has its
        share of it."""
        with self._lock:
            self._drop_silent()
            mine = sum(ticket.address == address for ticket in self._tickets) if address else 0
            taken = len(self._tickets)
            if address and mine >= BUSY_SHARE and 2 * taken > self.waiting:
                raise Refused("queue.share", count=mine)
            if taken > self.waiting * (1 if mine or not address else 2):
                raise Refused("queue.full", waiting=self.waiting)
            self._number += 1
            ticket = Ticket(address, self._number, batch=batch)
            self._tickets.append(ticket)
        return ticket

    def ahead(self, ticket: Ticket) -> int:
        """Return the number of runs before this one. 0: it may run, and counts as active from now on."""
        with self._lock:
            self._drop_silent()
            if ticket not in self._tickets:  # it was silent for too long
                return 0
            order = self._order()
            place = order.index(ticket)
            newcomer = not any(t.address == ticket.address for t in order[:place])
            if (
                place < self.together * (1 + newcomer)
                and ticket.batch
                and all(t.active is not None and t.batch == ticket.batch for t in order[:place])
            ):
                place = 0
            if place == 0 and ticket.active is None:
                ticket.active = time.monotonic()
                self._has_begun(ticket.address)
        return place

    def alive(self, ticket: Ticket) -> None:
        """Record activity of the active run."""
        ticket.active = time.monotonic()

    def give_way(self, ticket: Ticket) -> bool:
        """Put the active run back into the queue if a run of another address comes before it; return whether it
        did. It waits, between two rounds, until ``ahead`` is 0 again."""
        with self._lock:
            active, ticket.active = ticket.active, None
            waits = ticket in self._tickets and self._order()[0] is not ticket
            if not waits:
                ticket.active = active
        return waits

    def leave(self, ticket: Ticket) -> None:
        """Leave the queue; calling it again changes nothing."""
        with self._lock:
            if ticket in self._tickets:
                self._tickets.remove(ticket)

    def _has_begun(self, address: str) -> None:
        """Record that a run of an address begins; the addresses of the last REMEMBERED runs are kept."""
        self._begun.pop(address, None)
        self._number += 1
        self._begun[address] = self._number
        while len(self._begun) > REMEMBERED:
            self._begun.pop(next(iter(self._begun)))

    def _order(self) -> list[Ticket]:
        """Return the tickets in order: the active run, then round-robin over the addresses, within a round
        those first whose last run began longest ago, then by arrival."""
        seen: Counter[str] = Counter()
        ranks: dict[Ticket, int] = {}
        for ticket in sorted(self._tickets, key=lambda t: (t.active is None, t.number)):
            ranks[ticket] = seen[ticket.address]
            seen[ticket.address] += 1
        begun = {t: self._begun.get(t.address, 0) if t.address and t.active is None else 0 for t in ranks}
        return sorted(self._tickets, key=lambda t: (t.active is None, ranks[t], begun[t], t.number))

    def _drop_silent(self) -> None:
        now = time.monotonic()
        stood_still = max(0.0, now - self._looked - LOOK)
        self._looked = now
        for ticket in self._tickets:
            if ticket.active is not None:
                ticket.active = min(now, ticket.active + stood_still)
        self._tickets = [t for t in self._tickets if t.active is None or now - t.active <= self.silence]

    @contextmanager
    def open_run(self, address: str) -> Iterator[None]:
        """Context manager: count an open run of this address (waiting, loading or active). Raises Refused
        beyond the limit."""
        with self._lock:
            if address and self._open[address] >= self.open_runs:
                raise Refused("queue.open_runs", most=self.open_runs)
            self._open[address] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[address] -= 1
                self._open += Counter()  # keeps no address that has none
