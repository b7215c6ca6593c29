"""A head with a low-rank output matrix: the best approximation of its rank, made once per head, and the
same text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specviz.core import DraftTree, Sampling, State, open_run, play
from specviz.drafters.heads import low_rank_output
from specviz.drafters.heads.low_rank_output import LowRankHead, calibration_states
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


class ForgetsTheCentre(LowRankHead):
    """Wrong: the factors are fitted to centred states and are applied to the states themselves."""

    def __call__(self, states):
        return super().__call__(states + self.centre)


@pytest.mark.parametrize(
    "kind, rank",
    [*((LowRankHead, rank) for rank in (1, 3, 8, 99)), *((ForgetsTheCentre, rank) for rank in (3, 8, 99))],
)
def test_the_logits_of_the_calibration_text_are_approximated_best(rank, kind):
    """Against the truncated singular value decomposition of the logits themselves, which no factors of this
    rank can beat."""
    target = TinyTarget(toy(7).net, 32)
    states = (
        torch.randn(200, target.hidden, dtype=torch.float64)
        * torch.linspace(0.1, 3, target.hidden, dtype=torch.float64)
        + 1
    )
    made, logits = kind(target, rank, states), target.head(states)
    weights = made.weights
    assert float(weights.sum()) == pytest.approx(1) and float(weights.min()) >= 0.1 / 7

    def centred(rows):
        return (rows - (rows @ weights)[:, None]) * weights.sqrt()

    values = torch.linalg.svdvals(centred(logits) - centred(logits).mean(0))
    best, error = (
        float((values[rank:] ** 2).sum()),
        float((centred(made(states)) - centred(logits)).square().sum()),
    )
    assert (best - 1e-9 <= error <= best + 1e-2 * float((values**2).sum())) == (kind is LowRankHead)
    assert made.kept == pytest.approx(float((values[:rank] ** 2).sum() / (values**2).sum()), abs=1e-2)


def test_the_text_is_read_in_pieces_and_the_states_are_those_of_the_target():
    kit = toy(7)
    tokens = np.array([1, 2, 0, 2**32 - 1, 4, 5], np.uint32)
    found = calibration_states(TinyTarget(kit.net, 32), tokens, 64)
    want = TinyTarget(kit.net, 32)
    want.capture(frozenset({"final"}))
    want.sync([1])
    assert torch.equal(found, want.score(DraftTree.chain([2, 0, 4, 5])).hidden_states["final"])


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_the_text_is_the_targets_at_every_rank(rank):
    kit = toy(7, sharp=0.5)
    state, _ = run(kit, rank)
    assert state.tokens == greedy(kit.net.logits, PROMPT, 30)
    assert {data["rank"] for kind, data in state.notes if kind == "low_rank"} == {rank}


def test_the_factors_are_made_once_a_head_and_again_for_another_target(monkeypatch):
    made = []
    monkeypatch.setattr(
        low_rank_output,
        "LowRankHead",
        lambda target, *rest: made.append(target) or LowRankHead(target, *rest),
    )
    one, other = toy(7, seed=1), toy(7, seed=2)
    head = one.head("eagle")
    for kit in (one, one, other):
        kit.head = lambda kind: head
        run(kit, 4, 4)
    assert len(made) == 2
