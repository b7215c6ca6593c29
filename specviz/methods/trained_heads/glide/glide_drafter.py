"""GliDe's drafter on the target's KV cache, and CaPE: more candidates the lower the draft's confidence (Du
et al. 2402.02082)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ....core import (
    Budget,
    CapableTarget,
    Drafter,
    DraftTree,
    Outcome,
    Scores,
    State,
    TreeBuilder,
    common_prefix_length,
)
from ....drafters.heads.reduced_output import target_for_drafting
from ....drafters.model.chain import ModelDrafter
from ....trees import Scorer, top_k, top_probs

WIDTHS = (
    (0.3, 7),
    (0.6, 5),
    (0.8, 3),
    (1.0, 1),
)  # up to this probability of the most probable token, so many candidates


class GlideModel:
    """GliDe's draft model on the KV cache of one run's target, with the interface of a draft model:
    ``sync`` and ``score``. head: the network.

    Accepted tokens are computed again with those of the target's keys that were visible when they were
    drafted, as in training."""

    capabilities: frozenset[str] = frozenset()  # of what a draft model may lend

    def __init__(self, head: Any):
        self.net = head
        self.rows = head.open()
        self.read = []

    def start(self, target: CapableTarget) -> None:
        """Begin a run with this target."""
        self.target, self.vocab = target_for_drafting(target, self.net), target.vocab
        self.rows.restart(0)
        self.read, self.rows.horizons = [], []

    def sync(self, tokens: list[int]) -> None:
        """Bring the draft model's KV cache to ``tokens``, including the last one. The target's KV cache
        must hold tokens[:-1]."""
        known, last = common_prefix_length(self.read, tokens), len(tokens) - 1
        if known == len(tokens):
            known = last  # the root's row is what is drafted from
        before = max(known - 1, 0)  # keys there were when the tokens from here on were drafted
        self.rows.crop(known)
        horizons = [before if known else min(self.net.horizon(at), last) for at in range(known, last)]
        self.rows.horizons = [*self.rows.horizons[:known], *horizons, last]
        with torch.inference_mode():
            kind = self.rows.net.dtype
            self.rows.target_kv = [
                tuple(part[:, :last].to(kind) for part in self.target.kv(layer)) for layer in self.net.reads
            ]
            self._tip = self.rows.read(self.target.embed(tokens[known:]).to(kind))[-1:]
        self.read = list(tokens)

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return the Scores with logits [1 + nodes, vocab] after the root and the nodes of a growing tree,
        or only after the nodes from ``start`` on."""
        with torch.inference_mode():
            if not len(tree):
                self.rows.crop(self.rows.count)
                new = self._tip
            else:
                kind = self.rows.net.dtype
                new = self.rows.branch(
                    self.target.embed(tree.tokens[start:]).to(kind), tree.parents[start:], tree.depths[start:]
                )
            return Scores(self.target.head(new))


class Glide(Drafter):
    """Drafter with GliDe's draft model (Du et al. 2402.02082), which also attends to the target's keys and
    values. head: the network; grow(model): builds the drafter that uses it as its draft model."""

    needs = frozenset({"kv", "embed", "head"})
    restartable = False  # the target's keys of a text that was not verified are not there

    def __init__(self, head: Any, grow: Callable[[GlideModel], Drafter]):
        self.model = GlideModel(head)
        self.inner = grow(self.model)

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.model.start(target)
        self.inner.start(state, target, prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return self.inner.propose(state, budget)

    def observe(self, state: State, outcome: Outcome) -> None:
        self.inner.observe(state, outcome)


class CapeChain(ModelDrafter):
    """Drafter of a chain of top-1 tokens with further top tokens as siblings: the lower the top-1
    probability, the more (CaPE, Du et al. 2402.02082).

    The number of siblings depends on the same distribution as the tokens, so all nodes count as chosen.
    widths: (largest top-1 probability, number of candidates) pairs."""

    def __init__(self, model: Any, widths: tuple[tuple[float, int], ...] = WIDTHS):
        super().__init__(model)
        self.widths = widths

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        scorer = Scorer(self.model, state)
        node = -1
        sure = []
        wide = []
        if budget.gamma > 0:
            self.model.sync(state.tokens)
        for _ in range(budget.gamma):
            if len(builder) >= budget.nodes:
                break
            row = scorer.logits(builder, (node,))
            sure.append(round(float(top_probs(row)), 4))
            count = next(
                count for prob, count in self.widths if sure[-1] <= prob or prob == self.widths[-1][0]
            )
            wide.append(min(count, budget.width, budget.nodes - len(builder), row.shape[-1]))
            children = [builder.add(token, node) for token in self._best(row, wide[-1])]
            node = children[0]
        if wide:
            state.note("widths", sure=sure, wide=wide)
        return builder.tree()

    @staticmethod
    def _best(row: Tensor, count: int) -> list[int]:
        values, tokens = top_k(row, count)
        pairs = torch.stack([tokens[0].double(), values[0].double()]).tolist()  # one synchronisation for both
        return [int(token) for token, value in zip(*pairs) if value > -math.inf]
