"""Draft several sequences: independent samples (SpecTr, Sun et al. 2310.15141) and stochastic beam search
(RSD-S, Jeon et al. 2402.14160)."""

from __future__ import annotations

import heapq
import math

import torch
from torch import Tensor

from ...core import IID, WITHOUT_REPLACEMENT, Budget, DraftTree, State, TreeBuilder
from ...trees import Scorer, first_duplicates, top_k
from .chain import ModelDrafter


class DraftPaths(ModelDrafter):
    """Drafter of budget.width sequences of budget.gamma tokens, sampled independently from a draft model
    (SpecTr, Sun et al. 2310.15141); at temperature 0 one sequence, because all would be equal.

    Equal prefixes remain separate nodes, but share one distribution, which is computed once: two copies
    would differ by rounding, and a verifier could not see that they are equal.
    """

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder, scorer = TreeBuilder(), Scorer(self.model, state)
        tips = [-1] * (1 if state.sampling.greedy else budget.width)
        if budget.gamma > 0:
            self.model.sync(state.tokens)
        for _ in range(budget.gamma):
            alike = first_duplicates(builder, tips)
            alone = sorted(set(alike))
            distributions = dict(
                zip(alone, state.sampling.probs(scorer.logits(builder, [tips[i] for i in alone])))
            )
            for i, tip in zip(alike, tips):
                scorer.share_scores(tip, tips[i])
            draws = {i: builder.begin(probs, IID) for i, probs in distributions.items()}
            tips = [
                builder.add(state.rng.pick("draft", distributions[i]), tip, draws[i])
                for i, tip in zip(alike, tips)
            ]
        return builder.tree()


class StochasticBeam(ModelDrafter):
    """Drafter of a tree by stochastic beam search (RSD-S, Jeon et al. 2402.14160): each level keeps the
    budget.width sequences with the largest Gumbel-perturbed log-probability. They are samples of whole
    sequences without replacement.

    Perturbed values are drawn in descending order: the first child of a node has its parent's value, the
    next a Gumbel variate at the log of the remaining probability, truncated at the previous value. So it is
    decided whether a child is kept before its token is sampled, and every token follows the draft
    distribution given its earlier siblings.
    """

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder, scorer = TreeBuilder(), Scorer(self.model, state)
        beam = [(-1, 0.0, 0.0)]  # node, log-probability of its sequence, perturbed value
        if budget.gamma > 0:
            self.model.sync(state.tokens)
        grow = self._likely if state.sampling.greedy else self._drawn
        for _ in range(budget.gamma):
            rows = scorer.logits(builder, [node for node, _, _ in beam])
            beam = grow(builder, beam, rows, budget.width, state)
        return builder.tree()

    @staticmethod
    def _drawn(builder: TreeBuilder, beam, rows, width: int, state: State):
        distributions = list(state.sampling.probs(rows))
        draws = [builder.begin(probs, WITHOUT_REPLACEMENT) for probs in distributions]
        left: dict[
            int, Tensor
        ] = {}  # for a sequence with a child: its distribution without the drawn tokens, renormalised
        masses = [0.0] * len(distributions)  # log of the remaining mass of each distribution
        heap = [(-value, i) for i, (_, _, value) in enumerate(beam)]
        heapq.heapify(heap)
        out = []
        while heap and len(out) < width:
            value, i = -heap[0][0], heap[0][1]
            node, logprob, _ = beam[i]
            token = state.rng.pick("draft", left.get(i, distributions[i]))
            out.append(
                (
                    builder.add(token, node, draws[i]),
                    logprob + math.log(float(distributions[i][token])),
                    value,
                )
            )
            if len(out) == width:
                break
            if i not in left:
                left[i] = distributions[i].clone()
            rest = left[i]
            rest[token] = 0
            share = float(rest.sum())
            if share > 0:
                rest /= share
                masses[i] += math.log(share)
                u = 1.0 - float(state.rng.uniform_tensor("draft", (1,)))  # in (0, 1]
                heapq.heapreplace(heap, (-truncated_gumbel(logprob + masses[i], value, u), i))
            else:
                heapq.heappop(heap)
        return out

    @staticmethod
    def _likely(builder: TreeBuilder, beam, rows, width: int, state: State):
        """Plain beam search."""
        values, tokens = top_k(rows, width)
        values = values - rows.logsumexp(-1, keepdim=True)
        found_rows = torch.stack([values.double(), tokens.double()]).tolist()  # one transfer
        found = sorted(
            (
                (beam[i][1] + value, i, int(token))
                for i, (row, ids) in enumerate(zip(*found_rows))
                for value, token in zip(row, ids)
                if value > -math.inf
            ),
            key=lambda item: -item[0],
        )[:width]
        return [(builder.add(token, beam[i][0]), logprob, logprob) for logprob, i, token in found]


def truncated_gumbel(location: float, below: float, u: float) -> float:
    """Return a Gumbel variate with location ``location``, conditioned on being at most ``below``; u: a
    uniform number in (0, 1]."""
    return location - math.log(math.exp(min(location - below, 700.0)) - math.log(u))
