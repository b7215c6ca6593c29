"""Servers as lanes of the page: a card for each server that the owner configured, and its lanes in a run
together with local ones."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from typing import Any

from ..core.method import Method
from ..servers.configured import servers
from ..servers.dialects import ENGINES, FAMILY, KEY
from ..servers.messages import ServerError
from ..zoo.registry import ZooError
from .limits import RunRequest
from .messages import Refused, text

log = logging.getLogger(__name__)

ABOUT = "Engines of other servers, seen from outside: reported figures are observed, what follows from them inferred, the rest unknown."


class ServerCard(Method):
    """The card of a server: a Method that is not in the catalogue and has no knobs."""

    def __post_init__(self):
        """Skip Method's checks, because a server's exactness is unknown."""

    def read_knobs(self, given: dict[str, Any]) -> dict[str, Any]:
        """Refuse knobs: raises ValueError if any is given."""
        if given:
            raise ValueError(text("knob.server"))
        return {}


def served_cards() -> dict[str, Method]:
    """Return the servers' cards by key; empty if models.yaml is invalid (the first run reports the error).
    A malformed address in the environment ends the program."""
    try:
        named = servers()
    except ZooError as error:
        log.warning("no server is offered: %s", error)
        return {}
    except ServerError as why:
        raise SystemExit(f"specviz: {why}") from None
    return {
        KEY + name: ServerCard(
            key=KEY + name,
            title=name,
            paper="",
            family=FAMILY,
            summary=server.about
            or f"{ENGINES[server.engine].title} on a server: your prompt is sent there and its answer streamed.",
            exactness="its own",
            needs=frozenset({"server"}),
            look="The badges: observed, inferred, unknown.",
            wins="where its machine is larger than this one",
            loses="in detail: no server reports which tokens it rejected",
            aliases=(server.engine,),
        )
        for name, server in named.items()
    }


def is_served(key: str) -> bool:
    """Return whether a method's key names a server."""
    return key.startswith(KEY)


def server_streams(asked: RunRequest, seconds: float, mode: str = "live") -> dict[int, Any]:
    """Return {lane number: stream} for the run's server lanes; the streams are not started. Raises
    ServerError, or Refused for fields that cannot be sent to a server."""
    from ..core import Sampling
    from ..servers.stream import Stream

    if asked.generation and any(is_served(key) for key, _ in asked.lanes):
        raise Refused("field.generation_server", names=", ".join(asked.generation))
    sampling, named = Sampling(asked.temperature, 0, asked.top_p, asked.seed), servers()
    return {
        lane: Stream(
            named[key.removeprefix(KEY)], asked.messages(), asked.max_new_tokens, sampling, seconds, mode=mode
        )
        for lane, (key, _) in enumerate(asked.lanes)
        if is_served(key)
    }


def with_server_lanes(
    race: Generator[tuple[int, Any], None, None],
    asked: RunRequest,
    seconds: float,
    cancel: threading.Event | None,
    mode: str,
) -> Generator[tuple[int, Any], None, None]:
    """Yield (lane, event) of the run's local lanes, numbered as on the page, and of its servers' lanes."""
    from ..servers.merge_lanes import merge_lanes

    local = [lane for lane, (key, _) in enumerate(asked.lanes) if not is_served(key)]
    yield from merge_lanes(
        ((local[lane], event) for lane, event in race), server_streams(asked, seconds, mode), cancel
    )
