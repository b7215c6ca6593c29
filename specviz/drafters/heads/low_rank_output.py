"""A low-rank factorisation of the target's output matrix, for drafting (SlimSpec, Plaksin et al. 2605.10453).

A one-layer head that uses the target's full output matrix spends most of its time on it. Factors [vocab,
rank] and [rank, hidden] keep the whole vocabulary, where FR-Spec keeps some tokens (reduced_output.py).
Without training, they minimise the squared error of the logits over hidden states of a calibration text,
weighted by the tokens' probability. The plain singular value decomposition of the matrix weighs all
directions and tokens alike, and drafts almost nothing right (docs/log/2026-11/models.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ...core import Budget, CapableTarget, Drafter, DraftTree, Outcome, Scores, State
from ...models.linear import fastest_layout, without_timing
from .reduced_output import ReducedTarget, int8_linear, output_rows

PIECE = 128  # tokens of a piece of the calibration text
FLOOR = 0.1  # share of the token weights that is the same for all tokens
RIDGE = 1e-3  # share of the hidden states' mean variance that is added to the variance of each direction

_low_rank_heads: WeakKeyDictionary[Any, dict[int, LowRankHead]] = WeakKeyDictionary()


def calibration_states(target: CapableTarget, tokens: np.ndarray, count: int) -> Tensor:
    """Return the target's final hidden states [about count, hidden] for pieces of PIECE tokens, spread
    evenly over the text ``tokens``. The target's KV cache is overwritten."""
    tokens, states = tokens[tokens < target.vocab], []
    target.capture(frozenset({"final"}))
    pieces = max(1, count // PIECE)
    for first in range(0, len(tokens), max(1, -(-len(tokens) // pieces))):
        piece = tokens[first : first + min(PIECE, target.context - 1)].tolist()
        if len(piece) > 1:
            target.sync(piece[:1])  # nothing is kept of the piece before
            states.append(target.score(DraftTree.chain(piece[1:])).hidden_states["final"].clone())
    target.close()
    return torch.cat(states)


def mean_probs(target: CapableTarget, states: Tensor) -> Tensor:
    """Return the target's mean next-token distribution [vocab] over final hidden states [n, hidden], mixed
    with a uniform distribution of weight FLOOR."""
    total = sum(target.head(part).softmax(-1).double().sum(0) for part in states.split(PIECE))
    return (1 - FLOOR) * torch.as_tensor(total) / len(states) + FLOOR / target.vocab


class LowRankHead:
    """A low-rank approximation of the target's output matrix (lm_head): a function from final hidden states
    [n, hidden] to logits [n, vocab], up to a constant per row, which does not change the distribution
    (SlimSpec, Plaksin et al. 2605.10453).

    rank: of the factors; states [n, hidden]: calibration states over which the squared error of the logits
    is smallest, weighted by the tokens' mean probability; int8: compute the large factor in int8. kept:
    share of the weighted variance of the logits that the approximation keeps."""

    def __init__(self, target: CapableTarget, rank: int, states: Tensor, int8: bool = False):
        rows = output_rows(target)
        self.weights = mean_probs(target, states).to(rows.dtype)
        rows = rows - self.weights @ rows
        self.centre = states.to(rows.dtype).mean(0)
        near = (states.to(rows.dtype) - self.centre).double()
        spread = near.T @ near / len(near)
        spread.diagonal().add_(RIDGE * spread.diagonal().mean())
        values, basis = torch.linalg.eigh(spread)
        root = basis * values.sqrt() @ basis.T  # symmetric: spread = root root
        values, vectors = torch.linalg.eigh(
            root @ (rows.double().T * self.weights.double() @ rows.double()) @ root
        )  # ascending
        self.rank = min(rank, rows.shape[1])
        self.kept = float(values[-self.rank :].sum() / values.sum())
        chosen = vectors[:, -self.rank :]
        self.down = torch.linalg.solve(root, chosen).T.to(rows.dtype).contiguous()
        up, bias = (rows @ (root @ chosen).to(rows.dtype)).contiguous(), rows @ self.centre
        with without_timing():  # made within a run, which must write the same in the next process
            self.up = (
                int8_linear(up, bias)
                if int8
                else fastest_layout([up], up.numel() * up.element_size())(up, bias)
            )
        self.sample = [target.vocab // 2]
        self.expected = target.head(target.embed(self.sample))

    def __call__(self, states: Tensor) -> Tensor:
        return self.up(F.linear(states - self.centre, self.down))

    def fits(self, target: CapableTarget) -> bool:
        """Return whether this approximation was made from this target's output matrix."""
        logits = target.head(target.embed(self.sample))
        return logits.shape == self.expected.shape and torch.allclose(
            logits, self.expected, rtol=1e-2, atol=1e-2
        )


class LowRankOutput(Drafter):
    """Drafter that runs the drafter ``inner`` with a low-rank approximation of the target's output matrix.

    head: the inner drafter's trained draft head; the factors are computed once for it and shared by all
    runs; rank: of the factors; calibrate(): returns the calibration states [n, hidden] for LowRankHead."""

    def __init__(self, inner: Drafter, head: Any, rank: int, calibrate: Callable[[], Tensor]):
        self.inner = inner
        self.net = head
        self.rank = rank
        self.calibrate = calibrate
        self.hidden_states = inner.hidden_states
        self.needs = inner.needs
        self.restartable = inner.restartable

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        made = _low_rank_heads.setdefault(self.net, {})
        with torch.inference_mode():
            if self.rank not in made or not made[self.rank].fits(target):
                made[self.rank] = LowRankHead(
                    target, self.rank, self.calibrate(), bool(getattr(self.net, "use_int8", False))
                )
        self.low, self.width = made[self.rank], target.embed([0]).shape[-1]
        self.inner.start(state, cast(CapableTarget, ReducedTarget(target, self.low)), prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return self.inner.propose(state, budget)

    def observe(self, state: State, outcome: Outcome) -> None:
        state.note("low_rank", rank=self.low.rank, hidden=self.width, kept=round(self.low.kept, 4))
        self.inner.observe(state, outcome)
