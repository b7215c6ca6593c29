"""Wrong variants of Gumiho, Uno and Orthrus, each beside the right one: greedy equality is blind to the
wrong distributions, and the enumerated distribution is not; what Gumiho's Full Tree Attention appends to a
path is not what the target writes there."""

from __future__ import annotations

import pytest

from specviz.core import IID, Parts, TreeBuilder, Verdict
from specviz.drafters.heads.draft_path import DraftPathChain
from specviz.methods import catalogue
from specviz.policies import Fixed
from specviz.trees import sample_token
from specviz.verifiers import TokenRejection

from .broken_methods import Walk
from .test_broken_methods import HALF, Sampling, off, writes_the_greedy_tokens
from .toys import toy


class OtherNoise(DraftPathChain):
    """Tokens from a block of one noise, recorded with the distribution of another."""

    def propose(self, state, budget):
        drawn, recorded = (self.view.logits(self.path.fillers([u] * (budget.gamma - 1))) for u in (0.1, 0.9))
        return chained(drawn, recorded, state)


class FilledInTwice(DraftPathChain):
    """Tokens of a second pass, whose rows hold the first pass's, recorded with the distribution of the
    first."""

    def propose(self, state, budget):
        first = self.view.logits(self.path.fillers([0.5] * (budget.gamma - 1)))
        tokens = [sample_token(row, state)[0] for row in first[:-1]]
        return chained(self.view.logits(tokens), first, state)


def chained(drawn, recorded, state):
    build = TreeBuilder()
    for place, (row, other) in enumerate(zip(drawn, recorded)):
        token, _ = sample_token(row, state)
        build.add(token, place - 1, build.begin(state.sampling.probs(other), IID))
    return build.tree()


def on(kind, drafter):
    return lambda kit: Parts(drafter(kit.head(kind)), Fixed(2), TokenRejection())


CASES = {
    "uno": (OtherNoise, Sampling(1.0)),
    "uno at half the temperature": (OtherNoise, HALF),
    "orthrus": (FilledInTwice, Sampling(1.0)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_distribution_catches_it_and_passes_the_right_one(case):
    wrong, sampling = CASES[case]
    kind = case.split()[0]
    assert off(on(kind, wrong), sampling) > 1e-3
    assert off(on(kind, DraftPathChain), sampling) < 1e-12
    for drafter in (wrong, DraftPathChain):
        assert writes_the_greedy_tokens(on(kind, drafter), toy(12, share=0.8, sharp=3.0))


class FullTreeAttention(Walk):
    """A path that ends early goes on with a token of the next level of another path, as in Gumiho's code."""

    def verify(self, tree, scores, state):
        verdict = super().verify(tree, scores, state)
        path = list(verdict.path)
        if path and not tree.children(path[-1]):
            here = scores.logits[path[-1] + 1].argmax()
            found = [
                node
                for node, depth in enumerate(tree.depths)
                if depth == len(path) + 1 and tree.tokens[node] == here
            ]
            if found:
                return Verdict(
                    (*path, found[0]),
                    int(scores.logits[found[0] + 1].argmax()),
                    "bonus",
                    verdict.decisions,
                    verdict.probs,
                )
        return verdict


@pytest.mark.parametrize("verifier, right", [(TokenRejection, True), (FullTreeAttention, False)])
def test_a_path_completed_by_another_ones_token_is_caught(verifier, right):
    method = catalogue()["gumiho"]

    def parts(kit):
        made = method.build(kit, **method.read_knobs({"gain": 0.0, "nodes": 12, "top_k": 2, "depth": 4}))
        return Parts(made.drafter, made.policy, verifier())

    assert all(writes_the_greedy_tokens(parts, toy(4, seed=seed, sharp=3.0)) for seed in range(3)) == right
