"""Two models write together: each token follows a law made of both (FS-GEN, Zhang et al. 2406.12295).

The pair stands where a target stands, so that the ordinary rounds can speculate on it, as speculative contrastive decoding does
(Yuan et al. 2311.08981): what comes out follows the combined law exactly, whatever the drafts are. It is not the target's law.
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ..core import DraftTree, Outcome, Parts, Scores, State, Target, Verdict, play
from ..trace.events import Event, tell
from .speculate import opening, told

Mix = Callable[[Tensor, Scores], Tensor]  # logits [rows, vocab] of the target, Scores of the small model -> logits [rows, vocab]
Router = Callable[[Tensor], Tensor]  # laws [rows, vocab] of the small model -> [rows], whether the target has a say


class Combined:
    """A target and a small model as one target. ``taps``: states of the small model that the mixture needs."""

    capabilities = frozenset({"tree", "rewind"})

    def __init__(self, large: Target, small: Target, mix: Mix, router: Router, hidden_states: frozenset[str] = frozenset()):
        self.large, self.small, self.mix, self.router, self.hidden_states = large, small, mix, router, hidden_states
        self.vocab, self.context = large.vocab, min(large.context, small.context)

    def capture(self, names: frozenset[str]) -> None:
        self.large.capture(names)
        self.small.capture(self.hidden_states)

    def sync(self, tokens: Sequence[int]) -> Scores:
        self.small.sync(tokens)
        return self.large.sync(tokens)

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        ours, theirs = self.large.score(tree, start), self.small.score(tree, start)
        # the small model knows nothing of tokens beyond its vocabulary: there the target speaks alone
        theirs = replace(theirs, logits=torch.where(theirs.logits.isfinite(), theirs.logits, ours.logits))
        asked = self.router(theirs.logits.softmax(-1))
        self.rows = ours.logits, theirs.logits, asked
        return replace(ours, logits=torch.where(asked[:, None], self.mix(ours.logits, theirs), theirs.logits))

    def commit(self, verdict: Verdict) -> None:
        self.large.commit(verdict)
        self.small.commit(verdict)

    def close(self) -> None:
        self.large.close()
        self.small.close()

    def note(self, outcome: Outcome, state: State) -> None:
        """What each model thought of the tokens written; and the drift from the target, in nats: KL(combined, target's) at the run's
        temperature (the other way round it is endless where the mixture leaves tokens out), at temperature 0 the log-probability
        that the token gives up against the target's best."""
        rows, tokens = list(outcome.kept), list(outcome.committed)
        ours, theirs, both = (x[rows] for x in (self.rows[0], self.rows[1], outcome.scores.logits))
        at = range(len(rows)), tokens
        distributions = [x.float().softmax(-1) for x in (ours, theirs, both)]
        if state.sampling.greedy:
            nats = (distributions[0].amax(-1) / distributions[0][at]).log()
        else:
            p, e = ((x.float() / state.sampling.temperature).softmax(-1) for x in (ours, both))
            nats = torch.special.xlogy(e, e / p.clamp(min=torch.finfo(p.dtype).tiny)).sum(-1).clamp(min=0)
        state.note("drift", nats=nats.tolist())
        shown = {name: [round(x, 6) for x in probs[at].tolist()] for name, probs in zip(("large", "small", "combined"), distributions)}
        state.note("combined", tokens=tokens, asked=self.rows[2][rows].tolist(), **shown)


def together(parts: Parts, target: Target, state: State) -> Iterator[Event]:
    """The ordinary loop on a pair; helpers: "small" (a model with a cache of its own), "mix", "router", and "taps" if need be."""
    helpers = parts.helpers
    pair = Combined(target, helpers["small"], helpers["mix"], helpers["router"], helpers.get("hidden_states", frozenset()))
    yield from opening(parts, pair, state)
    yield from told(_rounds(parts, pair, state), state)


def _rounds(parts: Parts, pair: Combined, state: State) -> Iterator[Iterable[Event]]:
    while not state.done:
        yield _noted(play(parts, pair, state), pair, state)


def _noted(outcome: Outcome, pair: Combined, state: State) -> Iterator[Event]:
    """The round's events with the pair's notes, which nobody has to wait for."""
    pair.note(outcome, state)
    yield from tell(outcome, state)


def contrast(beta: float, alpha: float) -> Mix:
    """s + beta (l - s) of logits: beta 1 is the target alone, above 1 what only the small model likes is held against a token.
    Tokens to which the target gives less than ``alpha`` times its best one's probability are out."""
    def mix(large: Tensor, small: Scores) -> Tensor:
        out = torch.lerp(small.logits, large, beta)
        return out.masked_fill(large < large.amax(-1, keepdim=True) + math.log(alpha), -torch.inf)
    return mix


def shifted(alpha: float, before: Callable[[Scores], Tensor]) -> Mix:
    """l + alpha (s - before): what the small model has learned since ``before`` [rows, vocab], given to the target."""
    def mix(large: Tensor, small: Scores) -> Tensor:
        old, out = before(small), large.clone()
        known = min(old.shape[-1], out.shape[-1])  # tokens that the small model has
        out[:, :known] += alpha * (small.logits[:, :known] - old[:, :known])
        return out
    return mix
