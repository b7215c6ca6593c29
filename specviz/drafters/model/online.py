"""Update the draft model online (Online Speculative Decoding, Liu et al. 2310.07177).

Verification computes the target's distribution at every rejected token anyway. Such positions are
collected, and the draft model takes a distillation step on a batch of them. Steps happen between rounds,
and every token is verified with the distribution from which it was sampled, so the output stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core import CapableTarget, DraftTree, Outcome, Scores, State, Target, TrainableTarget
from ...core.needs import require_of_draft
from .overlap import OverlapChain, verified_rows

WINDOW = 512  # context tokens of a training step
PASSED = 32  # accepted positions kept for comparison, newest first
CLIP = 1.0  # gradient norm clip


@dataclass(frozen=True)
class VerifiedPosition:
    """A position at which a draft token was verified. at: index of the token in the text; logits [vocab]:
    the target's; overlap: sum of min(p, q) of target and draft distribution when it was drafted; refused:
    whether the draft token was rejected."""

    at: int
    logits: Tensor
    overlap: float
    refused: bool


class OnlineChain(OverlapChain):
    """Drafter of a chain with a copy of the draft model that is trained during generation (Liu et al.
    2310.07177). model: the original; it must have the capability "learning". every: number of rejected
    positions per training step; rate: constant AdamW learning rate.

    For comparison, the original model is evaluated at each training step on the positions since the
    previous step.
    """

    model: TrainableTarget

    def __init__(self, model: CapableTarget, every: int = 4, rate: float = 3e-4):
        require_of_draft(model, "learning")
        super().__init__(model.learning())
        self.original = model
        self.every = every
        self.updates = 0
        self.places: list[VerifiedPosition] = []
        with torch.inference_mode(False):
            self.optimiser = torch.optim.AdamW(self.model.weights, lr=rate, weight_decay=0.0)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        super().start(state, target, prefill)
        with state.clock.paused():  # it is only compared with
            self.original.sync(state.tokens)

    def observe(self, state: State, outcome: Outcome) -> None:
        with state.clock.paused():
            line = self.overlaps(state, outcome)
        rows = verified_rows(outcome)
        first = len(state.tokens) - len(outcome.committed)
        if self.places and first <= self.places[-1].at:  # another text
            self.places = []
        for i, (row, overlap) in enumerate(zip(rows, line)):
            refused = i == len(rows) - 1 and outcome.verdict.kind == "correction"
            self.places.append(
                VerifiedPosition(first + i, outcome.scores.model_logits[row].clone(), overlap, refused)
            )
        passed = [place for place in self.places if not place.refused]
        if len(passed) > PASSED:  # each holds a full row of logits
            self.places = [place for place in self.places if place.refused or place.at >= passed[-PASSED].at]
        refused = [place for place in self.places if place.refused]
        shown = {}
        if len(refused) >= self.every:
            with state.clock.paused():
                shown = {
                    "before": self.original_overlap(state),
                    "now": _mean([place.overlap for place in self.places]),
                }
            self.learn(state.tokens, refused)
            self.places, refused = [], []
        state.note(
            "overlap", line=line, waiting=len(refused), every=self.every, updates=self.updates, **shown
        )

    def original_overlap(self, state: State) -> float:
        """Return the mean overlap, sum of min(p, q), of the target and the original draft model over the
        positions since the last training step."""
        first, last = self.places[0].at, self.places[-1].at
        self.original.sync(state.tokens[:first])
        rows = self.original.score(DraftTree.chain(state.tokens[first:last])).logits
        drafted = self.comparison_probs(rows[[place.at - first for place in self.places]], state)
        logits = torch.stack([place.logits for place in self.places])
        return _mean(self.compute_overlaps(logits, drafted, state))

    def learn(self, tokens: list[int], places: list[VerifiedPosition]) -> None:
        """Take one training step: the cross-entropy between the target's distributions at these positions
        of the text ``tokens`` and the trained copy's."""
        last = places[-1].at
        start = max(0, last - min(WINDOW, self.model.context))
        kept = [place for place in places if place.at > start]
        with torch.inference_mode(False), torch.enable_grad():
            found = self.model.logits(tokens[start:last])[[place.at - 1 - start for place in kept]]
            width = min(found.shape[-1], len(kept[0].logits))
            wanted = torch.stack([place.logits for place in kept])[:, :width].to(found).softmax(-1)
            loss = -(wanted * found[:, :width].log_softmax(-1)).sum(-1).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.weights, CLIP)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
        self.model.drop_outdated()
        self.updates += 1


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 4)
