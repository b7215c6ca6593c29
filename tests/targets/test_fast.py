"""Our forward gives the numbers of transformers' own, for every tree and after every kind of round."""
from __future__ import annotations


import pytest
import torch
import transformers

from specviz.core import DraftTree, Verdict
from specviz.targets.fast import FastModel

from .rounds import Reference, play_rounds
from .tiny import FAST, VOCAB, checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@torch.inference_mode()
def poison(target):
    """Large finite values in every slot that nothing may read (NaN would leak through 0 * NaN even where it is masked)."""
    target._cache[:, :, :, len(target.seen):] = 1e4


def held(target):
    return [target.kv(layer) for layer in range(target.layers)]


@pytest.mark.parametrize("kind", FAST)
def test_200_random_rounds_equal_the_uncached_forward(folder, kind):
    path = checkpoint(folder, kind)
    target = FastModel(path).open()
    reference = Reference(transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval())
    seen = set()
    for error, cache, happened in play_rounds(target, reference, held, poison, 200, seed=FAST.index(kind)):
        assert error < 1e-4 and cache < 1e-4, (error, cache, happened)
        seen.add(happened)
    assert len(seen) == 7
