"""Limits per client address over all endpoints: requests per minute, open events, bytes of unread messages,
and idle sessions. Messages that nobody reads and sessions that nobody uses are dropped after ``PATIENCE``
seconds. (Limits of a single run: limits.py; of the queue: run_queue.py.)"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..engine.engine_job import PATIENCE
from ..engine.messages import Refused

REQUESTS = 2400  # a minute; a page with a run in flight sends about two a second
EVENTS = 64  # unanswered or unread, and as many idle sessions; a page has one or two, and a classroom shares an address
KEPT_BYTES = 16 * 2**20  # of unread answers
PAGE_IDLE = 600.0  # seconds before the session of a page that lost its connection is dropped, so that it can connect again
ADDRESSES = 4096  # remembered at one time


@dataclass
class _Account:
    allowance: float = REQUESTS
    at: float = field(default_factory=lambda: time.monotonic())
    events: dict[str, str] = field(default_factory=dict)  # event id -> session
    sessions: dict[str, None] = field(default_factory=dict)  # that its requests named, in order of use


class AddressBudget:
    """Counts what each network address requests, and refuses what exceeds its limits.

    ``queue``: Gradio's event queue, which holds the unread messages of each session; ``states``: Gradio's
    component states by session. Both are None until the app sets them."""

    def __init__(self, requests: int = REQUESTS, events: int = EVENTS, kept_bytes: int = KEPT_BYTES):
        self.queue: Any = None
        self.states: Any = None
        self.requests = requests
        self.events = events
        self.kept_bytes = kept_bytes
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._unread: dict[
            str, tuple[Any, float]
        ] = {}  # session -> its oldest unread message, and since when it is that
        self._idle: dict[str, float] = {}  # sessions without requests, events and messages, and since when
        self._single: set[str] = set()  # sessions that a call for programs made for itself
        self._pages: set[str] = set()  # sessions of pages, which have a heartbeat
        self._open: Counter[str] = (
            Counter()
        )  # session -> requests of it that are being answered, its heartbeat included
        self._owners: dict[str, str] = {}  # session -> the address that used it last

    def request(self, address: str, price: float = 1) -> None:
        """Count a request as ``price`` usual ones. Raises Refused if the address has sent too many."""
        account, now = self._account(address), time.monotonic()
        account.allowance = min(self.requests, account.allowance + (now - account.at) * self.requests / 60)
        account.at = now
        if account.allowance < price:
            raise Refused("budget.requests", most=self.requests)
        account.allowance -= price

    def event(self, address: str) -> None:
        """Check the limits before an event is queued. Raises Refused if too many events are open, or too
        many bytes are unread."""
        events = self._open_events(self._account(address))
        if len(events) >= self.events or sum(map(self._bytes, {*events.values()})) > self.kept_bytes:
            raise Refused("budget.events", most=self.events)

    def opened(self, address: str, event: str, session: str | None) -> None:
        """Record that an event was queued. event: its id; session: of the page that sent it."""
        self._account(address).events[event] = session or event
        if session is None:
            self._single.add(event)

    @contextmanager
    def session(self, address: str, name: Any, page: bool = False) -> Iterator[None]:
        """Keep a session while a request that names it is answered, and drop the oldest idle ones of its
        address beyond its share. page: whether the request is the heartbeat of a page."""
        if not isinstance(name, str):
            yield
            return
        self._own(address, name)
        if page:
            self._pages.add(name)
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]
            self._idle.pop(name, None)

    def _own(self, address: str, name: str) -> None:
        account, before = self._account(address), self._accounts.get(self._owners.get(name, ""))
        if before is not None:
            before.sessions.pop(name, None)
        self._owners[name] = address
        account.sessions[name] = None
        if len(account.sessions) > self.events:
            answered = self._answered()
            idle = [one for one in account.sessions if one != name and not self._in_use(one, answered)]
            for session in idle[: max(0, len(idle) + 1 - self.events)]:
                self._forget(session)

    def drop_unread(self) -> None:
        """Drop the messages of sessions from which nobody has read for PATIENCE seconds, and the queues and
        Gradio's component states of idle sessions."""
        if self.queue is None:
            return
        now, sessions = time.monotonic(), self.queue.pending_messages_per_session
        self._drop_records(now)
        unread, answered = {}, self._answered()
        for session, messages in list(sessions.items()):
            first = next(iter(messages._queue), None)
            before, since = self._unread.get(session, (None, now))
            since = (
                since if first is before else now
            )  # the first message has changed: messages are being read
            if first is not None and now - since > PATIENCE:
                while not messages.empty():
                    messages.get_nowait()
                if session not in answered:
                    self._drop_queue(session)
            elif first is not None:
                unread[session] = first, since
        self._unread = unread
        known = {
            *list(sessions),
            *list(self.queue.pending_event_ids_session),
            *self._owners,
            *self._single,
            *list(getattr(self.states, "session_data", ())),
        }
        self._idle = {one: self._idle.get(one, now) for one in known if not self._in_use(one, answered)}
        for session, since in list(self._idle.items()):
            if now - since > self._patience(session):
                self._forget(session)

    def _drop_records(self, now: float) -> None:
        """Drop Gradio's record of each event that has ended, which no page shows, and the accounts of
        addresses that have sent nothing for a minute and are owed nothing."""
        records = getattr(self.queue, "event_analytics", {})
        for event in [event for event in list(records) if event not in self.queue.event_ids_to_events]:
            records.pop(event, None)
        for address in [
            address
            for address, account in self._accounts.items()
            if now - account.at > 60 and not account.sessions and not self._open_events(account)
        ]:
            del self._accounts[address]

    def _forget(self, session: str) -> None:
        """Drop an idle session: its queue, its component states, and what is recorded of it here."""
        self._drop_queue(session)
        if self.states is not None:
            self.states.session_data.pop(session, None)
            self.states.time_last_used.pop(session, None)
        self._single.discard(session)
        self._pages.discard(session)
        self._idle.pop(session, None)
        account = self._accounts.get(self._owners.pop(session, ""))
        if account is not None:
            account.sessions.pop(session, None)

    def _drop_queue(self, session: str) -> None:
        if self.queue is not None:
            self.queue.pending_messages_per_session.pop(session, None)
            self.queue.pending_event_ids_session.pop(session, None)

    def _patience(self, session: str) -> float:
        """Return the seconds after which an idle session is dropped."""
        if session in self._pages:
            return PAGE_IDLE
        return (
            0
            if session in self._single and not self.queue.pending_event_ids_session.get(session)
            else PATIENCE
        )

    def _in_use(self, session: str, answered: set[str]) -> bool:
        """Return whether a request of this session is being answered, its heartbeat included, or an event
        is, or messages wait."""
        if session in self._open or session in answered:
            return True
        messages = self.queue.pending_messages_per_session.get(session) if self.queue is not None else None
        return messages is not None and not messages.empty()

    def _answered(self) -> set[str]:
        """Return the sessions of which an event is queued or still being answered. The ids that Gradio keeps
        by session do not tell: its route for cancelling takes one out while the event may go on."""
        events = list(self.queue.event_ids_to_events.values()) if self.queue is not None else ()
        return {event.session_hash for event in events}

    def _account(self, address: str) -> _Account:
        account = self._accounts.pop(address, None) or _Account(self.requests)
        self._accounts[address] = account
        while len(self._accounts) > ADDRESSES:
            self._accounts.popitem(last=False)
        return account

    def _open_events(self, account: _Account) -> dict[str, str]:
        """Return the events of an address that are unanswered, or whose answer is not fetched."""
        pending = self.queue.pending_event_ids_session if self.queue is not None else {}
        going = self.queue.event_ids_to_events if self.queue is not None else {}
        account.events = {
            event: session
            for event, session in account.events.items()
            if event in going or event in pending.get(session, ())
        }
        return account.events

    def _bytes(self, session: str) -> int:
        messages = self.queue.pending_messages_per_session.get(session) if self.queue is not None else None
        return sum(
            _size(getattr(message, "output", None)) for message in list(getattr(messages, "_queue", ()))
        )


def _size(value: Any) -> int:
    """Return the approximate bytes of an answer: those of its texts, and eight for each other value."""
    total, todo = 0, [value]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            todo += [*one.values(), *one]
        elif isinstance(one, (list, tuple)):
            todo += one
        else:
            total += len(one) if isinstance(one, str) else 8
    return total
