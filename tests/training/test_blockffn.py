"""The recipe of the target with sparse experts: its two losses by their definition, the weight that adapts,
and a tiny run."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import LlamaConfig

from specviz.core import Sampling
from specviz.methods import catalogue
from specviz.run.result import collect
from specviz.run.session import Session
from specviz.training import blockffn
from specviz.training.job import Job
from specviz.zoo import load

EPS = 1e-6


def scores(seed=0):
    return torch.randn(2, 8, 5, generator=torch.Generator().manual_seed(seed))


def test_locality_is_the_cross_entropy_of_neighbours():
    found, all_of_them = scores() / 50, []
    for row in found.tolist():
        for here, there in zip(row, row[1:]):
            for a, b in zip(here, there):
                p, q = (1 / (1 + math.exp(-blockffn.STEEPNESS * x)) for x in (a, b))
                all_of_them.append(-(q * math.log(p) + (1 - q) * math.log(1 - p)))
    assert float(blockffn.locality_loss(found)) == pytest.approx(
        sum(all_of_them) / len(all_of_them), rel=1e-4
    )


def test_chunks_are_charged_for_the_experts_that_any_of_their_tokens_uses():
    found, all_of_them = scores(), []
    for row in found:
        for first in (0, 4):
            idle = torch.ones(5)
            for token in row[first : first + 4]:
                active = token.clamp(min=0)
                idle *= 1 - active / active.sum()
            all_of_them.append(1 - idle)
    assert float(blockffn.chunk_loss(found, 4, EPS)) == pytest.approx(
        float(torch.cat(all_of_them).mean()), rel=1e-3
    )
    one, each = torch.full((1, 4, 4), -1.0), torch.full((1, 4, 4), -1.0)
    one[:, :, 0] = 1
    each[0].fill_diagonal_(1)
    assert float(blockffn.chunk_loss(one, 4, EPS)) == pytest.approx(0.25, abs=1e-3)
    assert float(blockffn.chunk_loss(each, 4, EPS)) == pytest.approx(1.0, abs=1e-3)


def test_union_shares_grow_with_the_window():
    active = torch.eye(4, dtype=torch.bool)
    assert blockffn.union_shares(active) == {1: 0.25, 2: 0.5, 4: 1.0}


@pytest.mark.parametrize(
    "value, ratio",
    [
        (lambda step: 1.0 if step < 4 else 0.5, 0.5),
        (lambda step: 1.0 + step / 1e6, blockffn.LEAST_GROWTH),
        (lambda step: 10.0 ** (step // 2), blockffn.MOST_FACTOR),
    ],
)
def test_the_weight_follows_the_loss_from_interval_to_interval(value, ratio):
    model = blockffn.ExpertsLlama(
        LlamaConfig(
            vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
        ),
        2,
        4,
    )
    hparams = {"chunk_loss": 0.1, "every": 2, "hold": 6}
    found = [model.chunk_weight(hparams, value(step)) for step in range(9)]
    assert found[:7] == pytest.approx([0.1] * 7)
    assert found[8] == pytest.approx(0.1 * ratio) and found[7] == pytest.approx((0.1 + found[8]) / 2)


def test_a_tiny_run_resumes_and_ships_a_target_that_writes(tmp_path):
    def job(steps):
        return Job(work=tmp_path / "work", size="tiny", steps=steps, quiet=True, device="cpu")

    blockffn.run(job(2))
    place = blockffn.run(job(4))
    assert job(4).last_log("blockffn")["steps"] == 4 and 0 < job(4).last_log("blockffn")["TLS"] < 1
    loaded = load(str(place), "none", "cpu")
    assert loaded.backend.name == "experts"
    assert (
        len(collect(Session(loaded, "prompt_lookup", sampling=Sampling(0.0)).run("Hello", 6)).token_ids) <= 6
    )
    assert load(str(place), str(place), "cpu").unsupported_reason(catalogue()["blockffn"]) is None


def test_without_weights_there_is_no_such_loss():
    model = blockffn.ExpertsLlama(
        LlamaConfig(
            vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
        ),
        2,
        4,
    )
    assert model.sparsity({"locality": 0.0, "chunk_loss": 0.0}, 1) == 0.0
