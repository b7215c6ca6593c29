"""A head with a low-rank output matrix: the best approximation of its rank, made once per head, and the same text."""
from __future__ import annotations

import pytest
import torch

from specviz.core import Sampling, State, open_run, play
from specviz.drafters.heads import low_rank_output
from specviz.drafters.heads.low_rank_output import LowRankHead
from specviz.methods import catalogue
from specviz.targets.tiny import TinyTarget

from ...exactness.toys import PROMPT, greedy, toy

SLIMSPEC = catalogue()["slimspec"]


def run(kit, rank: int, length: int = 30):
    parts, accepted = SLIMSPEC.build(kit, **SLIMSPEC.read_knobs({"rank": rank, "nodes": 6, "depth": 2})), 0
    state = State(list(PROMPT), Sampling(0.0), limit=length)
    open_run(parts, kit.target, state)
    while not state.done:
        accepted += len(play(parts, kit.target, state).verdict.path)
    return state, accepted


@pytest.mark.parametrize("rank", [1, 3, 8, 99])
def test_the_factors_are_the_truncated_singular_value_decomposition(rank):
    target = TinyTarget(toy(7).net, 32)
    states, matrix = torch.randn(3, target.hidden, dtype=torch.float64), target.net.output
    made, (left, values, right) = LowRankHead(target, rank), torch.linalg.svd(matrix, full_matrices=False)
    best = left[:, :rank] * values[:rank] @ right[:rank]
    assert torch.allclose(made(states), states @ best.T, atol=1e-9)
    assert made.kept == pytest.approx(float((values[:rank] ** 2).sum() / (values ** 2).sum()))


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_the_text_is_the_targets_at_every_rank(rank):
    kit = toy(7, sharp=0.5)
    state, _ = run(kit, rank)
    assert state.tokens == greedy(kit.net.logits, PROMPT, 30)
    assert {data["rank"] for kind, data in state.notes if kind == "low_rank"} == {rank}


def test_the_factors_are_made_once_a_head_and_again_for_another_target(monkeypatch):
    made = []
    monkeypatch.setattr(low_rank_output, "LowRankHead", lambda target, *rest: made.append(target) or LowRankHead(target, *rest))
    one, other = toy(7, seed=1), toy(7, seed=2)
    head = one.head("eagle")
    for kit in (one, one, other):
        kit.head = lambda kind: head
        run(kit, 4, 4)
    assert len(made) == 2
