"""Paint a picture scale by scale: a round is one forward pass, and all patches of a scale are drawn
independently (VAR, 2404.02905).

CoDe (2411.17787) hands over from the large model to a small refiner after some scales. Nothing is verified.
A round of the refiner has no pass of the target.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Protocol, cast

from torch import Tensor

from ..core import Budget, DraftTree, Outcome, Parts, Scores, State, Target, Verdict
from ..trace.events import Committed, Decided, Drafted, Event, ModelProbs, Noted, Verified, top_tokens
from .speculate import emit_rounds, start_run


class PaintsScales(Protocol):
    """A target with the capability "scales" (targets/next_scale.py). scales: the grids; model: its weights,
    whose number of parameters is shown."""

    scales: Any
    model: Any

    def sync(self, tokens: list[int], /) -> Scores:
        """Set the text, whose patches are the picture so far."""
        ...

    def next_scale(self) -> Tensor:
        """Return the logits [patches, vocab] of the current scale's patches."""
        ...

    def kv_bytes(self) -> int:
        """Return the size of the KV cache in bytes."""
        ...


class NextScale:
    """Decoding loop that paints the first ``large`` scales with the target and the others with
    helpers["refiner"]; None: all with the target."""

    def __init__(self, large: int | None = None):
        self.large = large

    def __call__(self, parts: Parts, target: Target, state: State) -> Generator[Event]:
        yield from start_run(parts, target, state)
        yield from emit_rounds(self._rounds(parts, cast(PaintsScales, target), state), state)

    def _rounds(self, parts: Parts, target: PaintsScales, state: State) -> Generator[Iterable[Event]]:
        while not state.done:
            scale = target.scales.num_complete(len(state.tokens) - state.start)
            large = self.large is None or scale < self.large
            who = target if large else parts.helpers["refiner"]
            began, rows = state.clock.now(), target.scales.grids[scale] ** 2
            who.sync(state.tokens)
            scores = Scores(who.next_scale())
            passed = state.clock.now()
            tokens, chosen, last = _draw(scores.logits, state)
            drawn = state.clock.now()
            seconds = dict.fromkeys(("plan", "draft", "verify", "commit", "observe"), 0.0)
            seconds |= {"verify" if large else "draft": passed - began, "judge": drawn - passed}
            state.note(
                "scale",
                scale=scale,
                grid=target.scales.grids[scale],
                of=len(target.scales.grids),
                seconds=passed - began,
                writer="large" if large else "small",
                parameters=who.model.parameters,
                kv_bytes=who.kv_bytes(),
                probs=chosen,
            )
            verdict = Verdict((), tokens[-1], "plain" if large else "small", probs=last)
            outcome = Outcome(
                DraftTree(),
                scores,
                verdict,
                Budget(0),
                tuple(tokens),
                tuple(range(len(tokens))),
                seconds,
                began,
            )
            yield _scale_events(outcome, state, large, rows)


def _draw(logits: Tensor, state: State) -> tuple[list[int], list[float], Tensor]:
    """Draw the tokens of a scale, each from its own row, and append them. Return them, their probabilities,
    and the last one's distribution."""
    tokens: list[int] = []
    chosen: list[float] = []
    probs = logits[0]
    for row in logits[: state.left]:
        probs = state.sampling.probs(state.process_draft_row(row, tokens))
        tokens.append(state.rng.pick("verify", probs))
        chosen.append(round(float(probs[tokens[-1]]), 4))
    state.tokens += tokens
    state.round += 1
    return tokens, chosen, probs


def _scale_events(outcome: Outcome, state: State, large: bool, rows: int) -> Generator[Event]:
    """Build the round's events: work of the refiner counts as drafting, work of the target as
    verification."""
    r = state.round - 1
    t0 = outcome.began
    seconds = outcome.seconds
    verdict = outcome.verdict
    t1, before = (
        t0 + seconds["draft"] + seconds["verify"],
        len(state.tokens) - state.start - len(outcome.committed),
    )
    assert verdict.probs is not None  # its tokens are drawn
    yield Drafted(r, t0, t0 if large else t1, ())
    if large:
        yield Verified(r, t0, t1, rows)
    yield Decided(r, ())
    kv = {"before": before, "after": before + rows, "dropped": 0}
    yield Committed(
        r,
        t1 + seconds["judge"],
        (),
        outcome.committed,
        verdict.kind,
        float(verdict.probs[verdict.token]),
        top_tokens(verdict.probs, state.top_k_saved),
        kv,
        seconds,
        *ModelProbs(outcome, state).of_committed(),
    )
    for kind, data in state.notes:
        yield Noted(r, kind, data)
    state.notes.clear()


paint_scales = NextScale()
