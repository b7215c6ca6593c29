"""A copy of a model that learns: its gradients reach every weight, its cache follows them, and the model it
came from stays."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree
from specviz.targets.fast import FastModel
from specviz.targets.hf import HFModel
from specviz.targets.hf_targets import UncachedTarget
from specviz.targets.tiny import TinyNet, TinyTarget

from .tiny import checkpoint

TEXT = [7, 3, 21, 9, 3, 40, 7, 11]


def opened(how, folder):
    if how == "tiny":
        return TinyTarget(TinyNet(48, 3))
    kind, way = how.split()
    model = (FastModel if way == "fast" else HFModel)(checkpoint(folder, kind), device="cpu")
    return UncachedTarget(model) if way == "uncached" else model.open()


def rows(target):
    """Logits after each token but the first, from the cache."""
    target.sync(TEXT[:2])
    return target.score(DraftTree.chain(TEXT[2:])).logits


@pytest.mark.parametrize(
    "how", ["tiny", "llama fast", "llama3 fast", "qwen3 fast", "gemma3 hf", "gpt2 uncached"]
)
def test_a_step_moves_every_weight_of_the_copy_and_none_of_the_model(how, tmp_path):
    whole = opened(how, tmp_path)
    before = rows(whole)
    with torch.inference_mode():  # as a run makes it
        learner = whole.learning()
        assert torch.allclose(rows(learner), before, atol=1e-4)
    found = learner.logits(TEXT)
    assert torch.allclose(found[1:], before, atol=1e-4)
    found.log_softmax(-1)[:, 5].sum().backward()
    moved = sum(weight.grad is not None and float(weight.grad.abs().max()) > 0 for weight in learner.weights)
    assert moved >= len(learner.weights) - 2, "nearly all: some have no say in these logits"
    with torch.no_grad():
        for weight in learner.weights:
            weight.sub_(weight.grad if weight.grad is not None else 0.0, alpha=-0.05)
        want = learner.logits(TEXT)
    learner.drop_outdated()
    with torch.inference_mode():
        assert torch.allclose(rows(learner), want[1:], atol=1e-4), (
            "what it held before the step is not used any more"
        )
    assert not torch.allclose(want[1:], before, atol=1e-3) and torch.allclose(
        rows(opened(how, tmp_path)), before, atol=1e-4
    )
    whole.close()
    assert torch.allclose(rows(whole), before, atol=1e-6) and whole.busy > 0
