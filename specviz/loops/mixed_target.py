"""Decode from a mixture of two models' distributions (FS-GEN, Zhang et al. 2406.12295).

The pair of models has the target interface, so ordinary speculative decoding runs on it, as in speculative
contrastive decoding (Yuan et al. 2311.08981). The output follows the mixture exactly, whatever the drafts
are; it does not follow the target's distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..core import BrokenModel, DraftTree, Outcome, Parts, Scores, State, Target, Verdict, has_nan, play
from ..trace.events import Event, round_events
from .speculate import emit_rounds, start_run

Mix = Callable[
    [Tensor, Scores], Tensor
]  # logits [rows, vocab] of the target, Scores of the small model -> logits [rows, vocab]
Router = Callable[
    [Tensor], Tensor
]  # distributions [rows, vocab] of the small model -> [rows], whether the target is used


class MixedTarget:
    """A target whose logits mix those of a large and a small model: ``mix`` combines them in rows where
    ``router`` asks for the large model; in the other rows they are the small model's. hidden_states: states
    of the small model that ``mix`` reads."""

    capabilities = frozenset({"tree", "rewind"})

    def __init__(
        self,
        large: Target,
        small: Target,
        mix: Mix,
        router: Router,
        hidden_states: frozenset[str] = frozenset(),
    ):
        self.large = large
        self.small = small
        self.mix = mix
        self.router = router
        self.hidden_states = hidden_states
        self.vocab, self.context = large.vocab, min(large.context, small.context)

    def capture(self, names: frozenset[str]) -> None:
        """Request hidden states of the large model."""
        self.large.capture(names)
        self.small.capture(self.hidden_states)

    def expect(self, rows: int) -> None:
        """Announce the largest number of rows of one pass, to both models."""
        self.large.expect(rows)
        self.small.expect(rows)

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Bring both KV caches to tokens[:-1]; return the large model's Scores."""
        self.small.sync(tokens)
        return self.large.sync(tokens)

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return the mixture's logits for the root and every node of the tree."""
        ours, theirs = self.large.score(tree, start), self.small.score(tree, start)
        if has_nan(theirs.logits) or bool((theirs.logits == torch.inf).any()):
            raise BrokenModel.second()
        # tokens beyond the small model's vocabulary keep the target's logits
        theirs = replace(theirs, logits=torch.where(theirs.logits.isfinite(), theirs.logits, ours.logits))
        asked = self.router(theirs.logits.softmax(-1))
        self.rows = ours.logits, theirs.logits, asked
        mixed = torch.where(asked[:, None], self.mix(ours.logits, theirs), theirs.logits)
        return replace(ours, logits=mixed, raw_logits=ours.logits)

    def commit(self, verdict: Verdict) -> None:
        """Keep the root and the accepted path in both KV caches."""
        self.large.commit(verdict)
        self.small.commit(verdict)

    def close(self) -> None:
        """Free both KV caches."""
        self.large.close()
        self.small.close()

    def note(self, outcome: Outcome, state: State) -> None:
        """Attach annotations to the round: each model's probabilities of the committed tokens, and the
        deviation from the target in nats. The deviation is KL(mixture, target) at the run's temperature
        (the reverse is infinite where the mixture masks tokens); at temperature 0 it is the log-probability
        lost against the target's top-1 token."""
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
        shown = {
            name: [round(x, 6) for x in probs[at].tolist()]
            for name, probs in zip(("large", "small", "combined"), distributions)
        }
        state.note("combined", tokens=tokens, asked=self.rows[2][rows].tolist(), **shown)


def decode_mixture(parts: Parts, target: Target, state: State) -> Generator[Event]:
    """Run speculative decoding on a mixture of target and small model. parts.helpers: "small" (a model with
    its own KV cache), "mix", "router", and optionally "hidden_states" (see MixedTarget)."""
    helpers = parts.helpers
    pair = MixedTarget(
        target, helpers["small"], helpers["mix"], helpers["router"], helpers.get("hidden_states", frozenset())
    )
    yield from start_run(parts, pair, state)
    yield from emit_rounds(_rounds(parts, pair, state), state)


def _rounds(parts: Parts, pair: MixedTarget, state: State) -> Generator[Iterable[Event]]:
    while not state.done:
        yield _noted(play(parts, pair, state), pair, state)


def _noted(outcome: Outcome, pair: MixedTarget, state: State) -> Generator[Event]:
    """Return the round's events, preceded by the pair's annotations; computed outside the timed region."""
    pair.note(outcome, state)
    yield from round_events(outcome, state)


def contrastive_mix(beta: float, alpha: float) -> Mix:
    """Return the mix function of contrastive decoding: s + beta (l - s) of the logits l of the large and s
    of the small model. beta 1 is the target alone; above 1, tokens that the small model prefers are
    penalised. Tokens with less than ``alpha`` times the target's top-1 probability are masked."""

    def mix(large: Tensor, small: Scores) -> Tensor:
        out = torch.lerp(small.logits, large, beta)
        return out.masked_fill(large < large.amax(-1, keepdim=True) + math.log(alpha), -torch.inf)

    return mix


def proxy_mix(alpha: float, before: Callable[[Scores], Tensor]) -> Mix:
    """Return the mix function of proxy tuning: l + alpha (s - before) of the logits l of the large and s of
    the small, tuned model. before: function from the small model's Scores to its logits [rows, vocab]
    without tuning."""

    def mix(large: Tensor, small: Scores) -> Tensor:
        old, out = before(small), large.clone()
        known = min(old.shape[-1], out.shape[-1])  # tokens that the small model has
        out[:, :known] += alpha * (small.logits[:, :known] - old[:, :known])
        return out

    return mix
