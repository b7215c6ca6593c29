"""The forward in eight bits: a row's logits are the same bits in every company, which no forward in floats
can say of itself."""

from __future__ import annotations

import random

import pytest
import torch
import transformers

from specviz.core import DraftTree
from specviz.models import llama
from specviz.targets.fast import FastModel
from specviz.targets.int8 import Int8Model, unsupported_reason
from specviz.targets.packed_pass import score_packed

from ..message_codes import begins
from .rounds import random_tree
from .tiny import CONTEXT, FAST, VOCAB, checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


def alone(model, tokens):
    """Logits behind a text, each token fed in a pass of its own."""
    target = model.open()
    for n in range(1, len(tokens) + 1):
        target.sync(tokens[:n])
        logits = target.score(DraftTree()).logits
    return logits[0]


def differing(model, seed: int, rounds: int = 12) -> int:
    """Rows of random trees, behind committed paths, whose bits are others than those of the text alone; of
    3 a round."""
    source = random.Random(seed)
    target = model.open()
    off = 0
    tokens = [source.randrange(VOCAB) for _ in range(8)]
    target.sync(tokens)
    for _ in range(rounds):
        tree = random_tree(source, VOCAB, source.randrange(2, 14), 4)
        logits = target.score(tree).logits
        for node in source.sample(range(len(tree)), 2) + [-1]:
            path = [tree.tokens[i] for i in tree.path(node)]
            off += not torch.equal(logits[node + 1], alone(model, tokens + path))
        tokens = (tokens + path + [source.randrange(VOCAB)])[: CONTEXT - 20]
        tokens = tokens if len(tokens) < CONTEXT - 20 else tokens[:10]
        target.sync(tokens)
    return off


@pytest.mark.parametrize("kind", FAST)
def test_a_row_says_the_same_bits_in_every_company(folder, kind):
    path = checkpoint(folder, kind)
    model = Int8Model(path)
    assert model.compiled is not None and model.kernel.startswith("int8")
    assert differing(model, FAST.index(kind)) == 0
    assert differing(FastModel(path), FAST.index(kind)) > 0  # the same question finds floats out


@pytest.mark.parametrize("kind", FAST)
def test_it_is_nearly_the_network_of_the_checkpoint(folder, kind):
    path = checkpoint(folder, kind)
    source = random.Random(1)
    tokens = [source.randrange(VOCAB) for _ in range(40)]
    target = Int8Model(path).open()
    target.sync(tokens[:10])
    ours = target.score(DraftTree.chain(tokens[10:])).logits
    net = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.inference_mode():
        theirs = net(torch.tensor([tokens])).logits[0, 9:]
    apart = (ours - theirs).norm() / theirs.norm()
    assert 1e-4 < apart < 0.08  # tiny networks round more: their rows are 32 numbers
    told = target.kv(1)[0]
    assert told.dtype == torch.float32 and told.shape[1] == 9


def test_sequences_in_one_pass_say_the_same_bits(folder):
    model, source = Int8Model(checkpoint(folder, "qwen3")), random.Random(3)
    texts = [[source.randrange(VOCAB) for _ in range(n)] for n in (4, 19, 33)]
    trees = [random_tree(source, VOCAB, n, 3) for n in (0, 5, 9)]
    together, each = [model.open() for _ in texts], [model.open() for _ in texts]
    for targets in (together, each):
        for target, text in zip(targets, texts):
            target.sync(text)
    for mine, target, tree in zip(score_packed(together, trees), each, trees):
        assert torch.equal(mine.logits, target.score(tree).logits)


def test_it_runs_what_the_float_forward_runs():
    small = dict(model_type="llama", max_position_embeddings=2048, head_dim=64)
    assert unsupported_reason(small) is None
    assert unsupported_reason(small | {"max_position_embeddings": 4096}) is None  # the context is cut instead
    assert unsupported_reason(small | {"head_dim": 512}) is None
    assert unsupported_reason({"model_type": "gpt2"}).startswith(begins(llama.WHY_NOT, "family"))
