"""Alternate between two models without verification (entropy-adaptive decoding, Simonds 2502.06833).

Each token is a round of plain decoding with the active model. At a switch, ``sync`` extends the other
model's cache. A round of the small model has no target pass, so the mean accepted length counts tokens per
pass of the large model.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Protocol, cast

from ..core import BrokenModel, Outcome, Parts, State, Target, play
from ..trace.events import Committed, Decided, Drafted, Event, ModelProbs, Noted, Verified, top_tokens
from .speculate import emit_rounds, start_run


class WriterPolicy(Protocol):
    """A policy that chooses the model of the next token. writer: "large" or "small"."""

    writer: str

    def entropy_values(self) -> dict[str, float]:
        """Return the entropies for the panel, in nats: entropy, mean, limit."""
        ...


def switching(parts: Parts, target: Target, state: State) -> Generator[Event]:
    """Decode each token with the target ("large") or helpers["small"], whichever the policy's ``writer``
    names."""
    yield from start_run(parts, target, state)
    yield from emit_rounds(_rounds(parts, target, state), state)


def _rounds(parts: Parts, target: Target, state: State) -> Generator[Iterable[Event]]:
    policy = cast(WriterPolicy, parts.policy)
    small, held = parts.helpers["small"], len(state.tokens) - 1  # tokens in the target's cache
    while not state.done:
        writer = policy.writer
        large = writer == "large"
        who = target if large else small
        began = state.clock.now()
        behind = len(state.tokens) - 1 - held
        who.sync(state.tokens)
        caught_up = state.clock.now() - began
        try:
            outcome = play(parts, who, state)
        except BrokenModel:
            if large:
                raise
            raise BrokenModel.second() from None
        state.note("switch", writer=writer, **policy.entropy_values())
        kv = {"before": held, "after": held + (behind + 1 if large else 0), "dropped": 0}
        held = kv["after"]
        yield _switch_events(outcome, state, large, caught_up, kv)


def _switch_events(
    outcome: Outcome, state: State, large: bool, caught_up: float, kv: dict[str, int]
) -> Generator[Event]:
    """Build the round's events: work of the small model counts as drafting, work of the target as
    verification."""
    seconds = dict(outcome.seconds)
    worked = seconds.pop("draft") + seconds.pop("verify") + caught_up
    seconds |= {"draft": 0.0 if large else worked, "verify": worked if large else 0.0}
    r, t0 = state.round - 1, outcome.began - caught_up
    t1, verdict = t0 + seconds["plan"] + worked, outcome.verdict
    assert verdict.probs is not None  # a token of plain decoding is drawn
    yield Drafted(r, t0, t0 if large else t1, ())
    if large:
        yield Verified(r, t0, t1, kv["after"] - kv["before"])
        yield Decided(r, ())
    yield Committed(
        r,
        t1 + seconds["judge"] + seconds["commit"],
        (),
        outcome.committed,
        "plain" if large else "small",
        float(verdict.probs[verdict.token]),
        top_tokens(verdict.probs, state.top_k_saved),
        kv,
        seconds,
        *ModelProbs(outcome, state).of_committed(),
    )
    for kind, data in state.notes:
        yield Noted(r, kind, data)
    state.notes.clear()
