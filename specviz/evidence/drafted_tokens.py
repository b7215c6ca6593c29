"""Test drafted tokens under the distribution that the draft tree records for them, before any verification.

Rejection sampling is exact only if a drafted token was sampled from the recorded distribution q. A draft
that is sampled through top-k or top-p and recorded without it (or the reverse) leaves no trace in the
decisions, which are right for the recorded numbers. So each sampled node is tested by itself: its
randomised probability integral transform under q, given its earlier siblings, is uniform on [0, 1], apart
for each rank among its siblings; and by betting (betting.py) against mistakes that are known."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..core import IID, WITHOUT_REPLACEMENT, DraftTree, Sampling
from .betting import TestMartingale

RANKS = ("drafted first", "drafted second", "drafted later")  # by the number of earlier siblings
DRAFT = "draft"
SIBLING = "sibling"
AGAINST = {  # main alternative of each bet
    DRAFT: "sampled from the nine tenths of the recorded distribution that are the most probable",
    SIBLING: "siblings without replacement recorded as independent ones, or the reverse",
}
NUCLEI = (0.97, 0.9, 0.75)  # shares of the recorded distribution from which a wrong draft may be sampled
POWERS = {"sharper": 4 / 3, "flatter": 3 / 4}  # exponents of the distribution
MAIN = "top-p 0.9"
STAKE = 0.95  # share of the wealth that is bet on an alternative under which some tokens are impossible
REPEATED = 1e6  # ratio of an outcome that is impossible under the null hypothesis
MOST = 6  # nodes of a round that are tested, chosen without a look at their tokens


@dataclass
class DraftedTokens:
    """Values and bets of drafted tokens. ranks: PIT values by RANKS; apart: bets; impossible: number of
    tokens whose recorded probability is 0; disordered: number of sampled nodes after a chosen sibling, which
    a verifier would test in the wrong order."""

    ranks: dict[str, list[float]] = field(default_factory=lambda: {rank: [] for rank in RANKS})
    apart: dict[str, TestMartingale] = field(
        default_factory=lambda: {kind: TestMartingale(why) for kind, why in AGAINST.items()}
    )
    impossible: int = 0
    disordered: int = 0

    def add(
        self,
        tree: DraftTree,
        sampling: Sampling,
        rng: torch.Generator,
        known: dict[int, list[Tensor]],
        text: int,
    ) -> None:
        """Test the sampled nodes of a draft tree. sampling: the request's; rng: for the transform; text:
        number of tokens before the draft; known: {position in the text: recorded distributions [vocab]} of this answer's earlier
        drafts, which is extended: a token that a drafter keeps for the next round counts once."""
        nodes = [
            node
            for node in range(len(tree))
            if node not in tree.probes
            and tree.label(node) in (IID, WITHOUT_REPLACEMENT)
            and not self._is_kept(tree, node, known, text)
        ]
        self.disordered += sum(
            tree.draw[other] < 0
            for node in nodes
            for other in tree.children(tree.parents[node])
            if other < node
        )
        for node in nodes:
            known.setdefault(text + tree.depths[node], []).append(_recorded(tree, node))
        if len(nodes) > MOST:
            chosen = torch.randperm(len(nodes), generator=rng)[:MOST].tolist()
            nodes = [nodes[i] for i in sorted(chosen)]
        for node in nodes:
            self._test(tree, node, sampling, rng)

    @staticmethod
    def _is_kept(tree: DraftTree, node: int, known: dict[int, list[Tensor]], text: int) -> bool:
        row = _recorded(tree, node)
        return any(
            row is other or torch.equal(row, other) for other in known.get(text + tree.depths[node], ())
        )

    def _test(self, tree: DraftTree, node: int, sampling: Sampling, rng: torch.Generator) -> None:
        probs = tree.draft_probs(node)
        assert probs is not None  # a node of these labels was sampled
        q = probs.double().cpu()
        q = q / q.sum()
        token = tree.tokens[node]
        earlier = earlier_siblings(tree, node)
        within = float(torch.rand(1, generator=rng, dtype=torch.float64))
        would = float(torch.rand(1, generator=rng, dtype=torch.float64))
        own = float(q[token])
        if own <= 0:
            self.impossible += 1
            return
        place = min(1.0, float(q[q > own].sum() + q[:token][q[:token] == own].sum()) + within * own)
        self.ranks[RANKS[min(len(earlier), len(RANKS) - 1)]].append(place)
        self._bet_draft(q, token, sampling)
        others = [other for other in tree.children(tree.parents[node]) if other < node]
        if tree.label(node) == WITHOUT_REPLACEMENT:
            others = earlier
        if others:
            base = _recorded(tree, node).double().cpu()
            again = float(base[sorted({tree.tokens[other] for other in others})].sum() / base.sum())
            self._bet_sibling(tree, node, others, again, would)

    def _bet_draft(self, q: Tensor, token: int, sampling: Sampling) -> None:
        own = float(q[token])
        best = q.sort(descending=True).values
        mass = best.cumsum(-1)

        def restricted(last: int) -> float:
            """Return the ratio of the most probable tokens up to rank ``last`` to the whole."""
            return float(own >= float(best[last])) / float(mass[last])

        ranks = {f"top-p {share}": int((mass - best < share).sum()) - 1 for share in NUCLEI}
        ratios = {name: restricted(last) for name, last in ranks.items()}
        if_true = 1 / float(mass[ranks[MAIN]])
        kept = int((mass - best < sampling.top_p).sum()) if sampling.top_p < 1 else len(best)
        kept = min(kept, sampling.top_k or len(best))
        ratios["the request's filters"] = restricted(kept - 1)
        ratios["top-1"] = (own >= float(best[0])) / float(best[0])
        bent = {name: own ** (power - 1) / float((q**power).sum()) for name, power in POWERS.items()}
        self.apart[DRAFT].bet({}, _staked(if_true), {n: _staked(r) for n, r in (ratios | bent).items()}, True)

    def _bet_sibling(
        self, tree: DraftTree, node: int, earlier: list[int], again: float, would: float
    ) -> None:
        if tree.label(node) == WITHOUT_REPLACEMENT:  # a repeated token is impossible and fails by itself
            self.apart[SIBLING].bet({}, REPEATED if would < again else 1.0, {"never": 1.0}, True)
            return
        other = tree.tokens[node] not in {tree.tokens[i] for i in earlier}
        left = max(1 - again, 1e-6)
        self.apart[SIBLING].bet({}, _staked(1 / left), {"never": _staked(other / left)}, True)


def earlier_siblings(tree: DraftTree, node: int) -> list[int]:
    """Return the siblings that were sampled before a node in the same draw."""
    return [
        other
        for other in tree.children(tree.parents[node])
        if other < node and tree.draw[other] == tree.draw[node]
    ]


def other_rule(tree: DraftTree, node: int) -> Tensor | None:
    """Return the distribution [vocab] under which a later sibling would be verified by the rule of the
    other label (IID or WITHOUT_REPLACEMENT); None for a first sibling or another label."""
    earlier = earlier_siblings(tree, node)
    if not earlier or tree.label(node) not in (IID, WITHOUT_REPLACEMENT):
        return None
    row = _recorded(tree, node)
    if tree.label(node) == WITHOUT_REPLACEMENT:
        return row
    row = row.clone()
    row[[tree.tokens[other] for other in earlier]] = 0
    left = float(row.sum())
    return row / left if left > 0 else row


def _recorded(tree: DraftTree, node: int) -> Tensor:
    assert tree.probs is not None  # a sampled node has a distribution
    return tree.probs[tree.draw[node]]


def _staked(ratio: float) -> float:
    return 1 - STAKE + STAKE * ratio
