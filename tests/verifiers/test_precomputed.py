"""Token rejection precomputed on a device equals the walk on the host: same verdicts from the same
uniforms, on trees of all kinds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from specviz.core import CHOSEN, IID, WITHOUT_REPLACEMENT, Sampling, Scores, State, TreeBuilder
from specviz.trees import sample_without_replacement
from specviz.verifiers.token_rejection import TokenRejection

VOCAB = 6


def grown(rng, state):
    """A tree of up to three levels, its children drawn with or without replacement, chosen, or a mixture."""
    build, tips = TreeBuilder(), [-1]
    for _ in range(rng.randrange(4)):
        tips = [node for tip in tips for node in below(build, tip, rng, state)][:4]
    return build.tree()


def below(build, tip, rng, state):
    probs = torch.rand(VOCAB).softmax(-1)
    kind = rng.choice((IID, WITHOUT_REPLACEMENT, CHOSEN))
    made = []
    if kind != CHOSEN:
        draw, count = build.begin(probs, kind), rng.randrange(1, 4)
        tokens = (
            sample_without_replacement(probs, count, state)
            if kind == WITHOUT_REPLACEMENT
            else [state.rng.pick("draft", probs) for _ in range(count)]
        )
        made = [build.add(token, tip, draw) for token in tokens]
    chosen = {build.tokens[node] for node in made}
    return made + [build.add(token, tip) for token in rng.sample(range(VOCAB), 2) if token not in chosen]


@pytest.mark.parametrize("seed", range(40))
def test_a_walk_over_what_was_foreseen_is_the_walk(seed):
    rng, rule = random.Random(seed), TokenRejection()
    torch.manual_seed(seed)
    ours, theirs = (State([1], Sampling(1.0, seed=seed)) for _ in range(2))
    tree = grown(rng, ours)
    scores = Scores(torch.randn(len(tree) + 1, VOCAB) * 2)
    precomputed = rule.precompute(tree, scores, theirs)
    precomputed.values = precomputed.asked.tolist()
    want, got = (
        rule.verify(tree, scores, ours),
        rule.verify(tree, replace(scores, precomputed=precomputed), theirs),
    )
    assert (want.path, want.token, want.kind) == (got.path, got.token, got.kind)
    assert [(t.node, t.rule, t.verdict, t.draw) for t in want.decisions] == [
        (t.node, t.rule, t.verdict, t.draw) for t in got.decisions
    ]
    for a, b in zip(want.decisions, got.decisions):
        assert a.accept == pytest.approx(b.accept, abs=1e-6) and torch.allclose(a.probs, b.probs, atol=1e-6)
        assert a.residual is b.residual is None or torch.allclose(a.residual, b.residual, atol=1e-6)
    assert torch.allclose(want.probs, got.probs, atol=1e-6)
    assert ours.rng.ahead("verify", 1) == theirs.rng.ahead("verify", 1), "as many uniforms were used"
