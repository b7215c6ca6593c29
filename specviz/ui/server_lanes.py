"""Servers among the methods of the page: a card a server that its owner named, and their lanes beside the local ones of a run."""
from __future__ import annotations

import threading
from typing import Any, Generator

from ..servers.dialects import ENGINES, FAMILY, KEY
from ..servers.configured import servers
from ..servers.http_client import ServerError
from ..zoo.registry import ZooError
from .cards import Card
from .limits import Ask

ABOUT = "Engines that others run, seen from outside: what they tell is observed, what follows from it inferred, the rest unknown."


class ServerCard(Card):
    """A server's card: it is in no catalogue and has no knobs."""

    def read_knobs(self, given: dict[str, Any]) -> dict[str, Any]:
        if given:
            raise ValueError("a server has no knobs")
        return {}


def served_cards() -> dict[str, Card]:
    """By key. None where the file that names them is broken: the first run says why. An address that is none ends the program."""
    try:
        named = servers()
    except ZooError:
        return {}
    except ServerError as why:
        raise SystemExit(f"specviz: {why}") from None
    return {KEY + name: ServerCard(
        key=KEY + name, title=name, paper="", family=FAMILY,
        summary=server.about or f"{ENGINES[server.engine].title} on a server: what you write is sent there, and its answer streamed.",
        exactness="its own", needs=frozenset({"server"}), look="The badges: what it tells, what follows from that, what nobody tells.",
        wins="where its machine is larger than this one", loses="in being looked into: no server tells which tokens it refused",
        aliases=(server.engine,)) for name, server in named.items()}


def is_served(key: str) -> bool:
    return key.startswith(KEY)


def streams(ask: Ask, seconds: float, mode: str = "live") -> dict[int, Any]:
    """The run's server lanes by their number, not begun. Raises ServerError."""
    from ..core import Sampling
    from ..servers.stream import Stream

    probs, named = Sampling(ask.temperature, 0, ask.top_p, ask.seed), servers()
    return {lane: Stream(named[key.removeprefix(KEY)], ask.messages(), ask.max_new_tokens, probs, seconds, mode=mode)
            for lane, (key, _) in enumerate(ask.lanes) if is_served(key)}


def together(race: Generator[tuple[int, Any], None, None], ask: Ask, seconds: float, cancel: threading.Event | None,
             mode: str) -> Generator[tuple[int, Any], None, None]:
    """A race of the run's local lanes, by their numbers on the page, with its servers' lanes beside it."""
    from ..servers.merge_lanes import beside

    local = [lane for lane, (key, _) in enumerate(ask.lanes) if not is_served(key)]
    yield from beside(((local[lane], event) for lane, event in race), streams(ask, seconds, mode), cancel)
