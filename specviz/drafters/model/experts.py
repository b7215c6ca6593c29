"""Draft trees for a target with sparse experts (BlockFFN, Song et al. 2507.08771), and what each forward
pass read of its experts."""

from __future__ import annotations

from ...core import CapableTarget, DraftingModel, Outcome, Scores, State
from ...trees import Shape
from .chain import DraftShape


class PricedShape(DraftShape):
    """Drafter of a tree of a fixed shape for a target with sparse experts (BlockFFN, Song et al.
    2507.08771). After each round the note "expert_union" tells which experts the tokens of the target's
    pass used, and how many bytes of weights were read, also as a mean over the run for passes of 1, 2, ...
    tokens: the cost of a longer or wider draft."""

    needs = frozenset({"experts"})

    def __init__(self, model: DraftingModel, shape: Shape):
        super().__init__(model, shape)
        self.totals: list[int] = []  # experts read by the first 1, 2, ... rows, summed over rounds
        self.counts: list[int] = []

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        super().start(state, target, prefill)
        self.target = target

    def observe(self, state: State, outcome: Outcome) -> None:
        super().observe(state, outcome)
        read = self.target.experts_read()
        rows = len(outcome.tree) + 1
        if (
            read is None or read.used.shape[1] != rows
        ):  # a batched pass, or one that read deferred tokens, too
            return
        unions = read.unions()
        grown = rows - len(self.totals)
        self.totals, self.counts = self.totals + [0] * grown, self.counts + [0] * grown
        for i, union in enumerate(unions):
            self.totals[i] += union
            self.counts[i] += 1
        layers, _, experts = read.used.shape
        used = [[[e for e, on in enumerate(row) if on] for row in layer] for layer in read.used.tolist()]
        state.note(
            "expert_union",
            experts=experts,
            used=used,
            bytes=unions[-1] * read.expert_bytes,
            whole=layers * experts * read.expert_bytes,
            separately=read.separately() * read.expert_bytes,
            other=read.other_bytes,
            line=[union * read.expert_bytes for union in unions],
            mean=[round(total / count * read.expert_bytes) for total, count in zip(self.totals, self.counts)],
        )
