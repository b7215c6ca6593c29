"""Mistakes that leave the text right and lower acceptance, as switches on a run: the wiring of an EAGLE head on the small
target (coursework/acceptance_killers.py), with any of them put in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..core.errors import CodedError
from ..coursework import acceptance_killers as wiring
from ..coursework.engine_checks import SMALL
from ..coursework.submission import TrustedCode
from ..run.request import SessionError
from .payload import prompt_of

if TYPE_CHECKING:
    from ..zoo.pair import Loaded


def acceptance_killers(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[Any]:
    """Run the head with some of its wiring wrong. payload {prompt?, mistakes?: [name]} -> {target, draft_length,
    mistakes, runs: [{mistakes, tokens_per_pass, accepted, equal, text}]}, yielded repeatedly; the first run is the
    right wiring. accepted: drafted tokens that were accepted in each round; equal: to plain decoding of the same
    tokens. Raises SessionError for an unknown mistake, and for two that change the same function."""
    prompt = prompt_of(payload, wiring.QUESTIONS[0])
    asked = payload.get("mistakes") or []
    if not isinstance(asked, list) or not all(
        isinstance(one, str) and one in wiring.CHANGES for one in asked
    ):
        raise SessionError(f"mistakes is a list of {', '.join(wiring.CHANGES)}.", "lab.killers")
    changes = dict(wiring.CHANGES[one] for one in dict.fromkeys(asked))
    if len(changes) < len(set(asked)):
        raise SessionError("Two of these mistakes change the same function.", "lab.killers_pair")
    answer: dict[str, Any] = {
        "target": SMALL,
        "draft_length": wiring.DRAFT,
        "mistakes": [
            {"key": key, "part": part, "sentence": wiring.SENTENCES[key]}
            for key, (part, _) in wiring.CHANGES.items()
        ],
        "runs": [],
    }
    yield "Running the head as it was trained."
    answer["runs"].append(_run(prompt, ()))
    yield answer | {"runs": list(answer["runs"])}
    if changes and not stop():
        yield "Running it with the mistake in it."
        answer["runs"].append(_run(prompt, tuple(dict.fromkeys(asked))))
        yield answer


@lru_cache(64)
def _run(prompt: str, mistakes: tuple[str, ...]) -> dict[str, Any]:
    source = wiring.wired(**dict(wiring.CHANGES[one] for one in mistakes))
    try:
        found = wiring.measure(TrustedCode(source), (prompt,))
    except CodedError as error:
        raise SessionError(str(error), "lab.killers_target") from None
    return {
        "mistakes": list(mistakes),
        "tokens_per_pass": found.rate,
        "accepted": found.accepted,
        "equal": found.equal,
        "text": found.texts[0],
    }
