"""Any transformers model behind the contract: same numbers as its own plain forward, for every tree and kind of round."""
from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree
from specviz.targets.hf import HFModel

from .rounds import Reference, play_rounds
from .tiny import CONFIGS, WINDOW, checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@torch.inference_mode()
def poison(target):
    """Large finite values in every slot that nothing may read."""
    for layer in target._cache.layers:
        layer.keys[:, :, len(target.seen):] = 1e4
        layer.values[:, :, len(target.seen):] = 1e4


def held(target):
    rows = len(target.seen)
    return [(layer.keys[0, :, :rows], layer.values[0, :, :rows]) for layer in target._cache.layers]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_200_random_rounds_equal_the_uncached_forward(folder, kind, attention):
    model = HFModel(checkpoint(folder, kind), device="cpu", attn_implementation=attention)
    assert model.note is None and model.config._attn_implementation == attention
    seen, longest, target = set(), 0, model.open()
    for error, cache, happened in play_rounds(target, Reference(model.net), held, poison, 200 if attention == "sdpa" else 40, seed=len(kind)):
        assert error < 1e-5 and cache < 1e-5, (error, cache, happened)
        seen.add(happened)
        longest = max(longest, len(target.seen))
    assert len(seen) == 7 and longest > 3 * WINDOW
