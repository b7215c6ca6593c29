"""A draft model that learns while it serves (Online Speculative Decoding, Liu et al. 2310.07177).

Where the target refuses a token, its distribution is known anyway: such places are gathered, and with enough of them the draft takes
one step towards the target there. The step lies between rounds, and every token is judged by the distribution it was drawn from,
whatever the weights were: the output stays exact.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core import DraftTree, Outcome, Scores, State, Target
from .watched import WatchedChain, judged

WINDOW = 512  # tokens of the text, up to the newest place, that a step reads
PASSED = 32  # places where the draft's token passed that are kept, the newest, to compare
CLIP = 1.0  # of the gradient's norm


@dataclass(frozen=True)
class Place:
    """A judged place. at: index in the text of the token it is about; logits [vocab]: the target's; overlap: what both distributions
    had in common as the draft was then; refused: whether the draft's token was."""

    at: int
    logits: Tensor
    overlap: float
    refused: bool


class OnlineChain(WatchedChain):
    """A chain from a copy of the model's weights. every: refused places for a step; rate: of AdamW, constant.

    The model as it came is kept, and at each step it is asked what it would have agreed with the target since the last one.
    """

    def __init__(self, model: Target, every: int = 4, rate: float = 3e-4):
        super().__init__(model.learning())
        self.unlearned, self.every, self.updates = model, every, 0
        self.places: list[Place] = []
        with torch.inference_mode(False):
            self.optimiser = torch.optim.AdamW(self.model.weights, lr=rate, weight_decay=0.0)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        super().start(state, target, prefill)
        self.unlearned.sync(state.tokens)

    def observe(self, state: State, outcome: Outcome) -> None:
        line, rows = self.overlaps(state, outcome), judged(outcome)
        first = len(state.tokens) - len(outcome.committed)
        if self.places and first <= self.places[-1].at:  # another text
            self.places = []
        for i, (row, overlap) in enumerate(zip(rows, line)):
            refused = i == len(rows) - 1 and outcome.verdict.kind == "correction"
            self.places.append(Place(first + i, outcome.scores.logits[row].clone(), overlap, refused))
        passed = [place for place in self.places if not place.refused]
        if len(passed) > PASSED:  # a row of a large vocabulary each
            self.places = [place for place in self.places if place.refused or place.at >= passed[-PASSED].at]
        refused = [place for place in self.places if place.refused]
        told = {}
        if len(refused) >= self.every:
            told = {"before": self.before(state), "now": _mean([place.overlap for place in self.places])}
            self.learn(state.tokens, refused)
            self.places, refused = [], []
        state.note("overlap", line=line, waiting=len(refused), every=self.every, updates=self.updates, **told)

    def before(self, state: State) -> float:
        """Mean overlap of the target with the model as it came, over the places since the last step."""
        first, last = self.places[0].at, self.places[-1].at
        self.unlearned.sync(state.tokens[:first])
        rows = self.unlearned.score(DraftTree.chain(state.tokens[first:last])).logits
        return _mean([self.common(place.logits[None], [self.believes(rows[place.at - first], state)], state)[0] for place in self.places])

    def learn(self, tokens: list[int], places: list[Place]) -> None:
        """One step of soft cross-entropy towards the target's distributions at these places."""
        last = places[-1].at
        start = max(0, last - WINDOW)
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
        self.model.renew()
        self.updates += 1


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 4)
