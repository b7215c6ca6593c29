"""A row's bits depend on nothing but its text: not on other rows, slots, chunks of the prefill, sequences in
the same pass, threads or the instruction set. Randomised."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
import torch

from specviz import ROOT
from specviz.core import DraftTree
from specviz.core.threads import set_thread_count, thread_count
from specviz.kernels.vector import available_instruction_sets
from specviz.targets import base, llama
from specviz.targets.int8 import Int8Model
from specviz.targets.packed_pass import score_packed

from ..targets.rounds import random_tree
from ..targets.tiny import FAST, VOCAB, checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture
def threads():
    """Set the number of threads; put it back after the test."""
    before = thread_count()
    yield set_thread_count
    set_thread_count(before)


def text(source: random.Random, n: int) -> list[int]:
    return [source.randrange(VOCAB) for _ in range(n)]


def one_by_one(model, tokens):
    """Logits after each token of a text, each in a pass of its own, and the target."""
    target = model.open()
    rows = []
    for n in range(1, len(tokens) + 1):
        target.sync(tokens[:n])
        rows.append(target.score(DraftTree()).logits)
    return torch.cat(rows), target


def spoil_unseen(target, past: int) -> None:
    """Fill every slot after the committed ones with NaN."""
    with torch.inference_mode():
        target.slots[:, :, :, past:] = float("nan")


def differing_rows(model, seed: int, rounds: int = 6) -> int:
    """Number of rows of random trees, with NaN in every slot that no row sees, whose logits or hidden states
    have other bits than those of the path alone."""
    source = random.Random(seed)
    off = 0
    for _ in range(rounds):
        tokens = text(source, source.randrange(3, 40))
        target = model.open()
        target.capture(frozenset({"final", "layer:1"}))
        target.sync(tokens)
        target.flush()
        spoil_unseen(target, len(tokens) - 1)
        tree = random_tree(source, VOCAB, source.randrange(2, 20), 4)
        scores = target.score(tree)
        for node in [*source.sample(range(len(tree)), 2), -1]:
            path = [tree.tokens[i] for i in tree.path(node)]
            alone = model.open()
            alone.capture(frozenset({"final", "layer:1"}))
            alone.sync(tokens + path)
            want = alone.score(DraftTree())
            off += not torch.equal(scores.logits[node + 1], want.logits[0])
            for name, states in scores.hidden_states.items():
                off += not torch.equal(states[node + 1], want.hidden_states[name][0])
    return off


@pytest.mark.parametrize("kind", FAST)
def test_a_row_of_a_tree_has_the_bits_of_its_path(folder, kind):
    assert differing_rows(Int8Model(checkpoint(folder, kind)), FAST.index(kind)) == 0


def test_the_property_catches_sums_in_another_order(folder, monkeypatch):
    """A wrong variant: weights and values of the draft rows summed from the last to the first."""
    seen_rows = llama.cached_seen_rows

    def reversed_order(shape):
        seen = seen_rows(shape)
        lists = seen.lists.copy()
        for row, count in zip(lists, seen.counts):
            row[: count - 1] = row[: count - 1][::-1]
        return seen._replace(lists=lists)

    monkeypatch.setattr(llama, "cached_seen_rows", reversed_order)
    assert differing_rows(Int8Model(checkpoint(folder, "llama")), 0) > 0


@pytest.mark.parametrize("kind", FAST)
@pytest.mark.parametrize("chunk", [3, 7, 40])
def test_chunks_of_the_prefill_change_no_bit(folder, kind, chunk, monkeypatch):
    model = Int8Model(checkpoint(folder, kind))
    tokens = text(random.Random(chunk), 33)
    _, alone = one_by_one(model, tokens)
    monkeypatch.setattr(base, "PREFILL_CHUNK", chunk)
    target = model.open()
    target.sync(tokens)
    assert torch.equal(target.score(DraftTree()).logits, alone.score(DraftTree()).logits)
    for layer in range(model.layers):
        for mine, theirs in zip(target.kv(layer), alone.kv(layer)):
            assert torch.equal(mine, theirs)


def test_sequences_in_one_pass_change_no_bit(folder):
    for seed, kind in enumerate(FAST):
        model = Int8Model(checkpoint(folder, kind))
        source = random.Random(seed)
        texts = [text(source, n) for n in (4, 19, 33, 2)]
        trees = [random_tree(source, VOCAB, n, 3) for n in (0, 5, 9, 1)]
        together = [model.open() for _ in texts]
        each = [model.open() for _ in texts]
        for targets in (together, each):
            for target, tokens in zip(targets, texts):
                target.sync(tokens)
        for mine, target, tree in zip(score_packed(together, trees), each, trees):
            assert torch.equal(mine.logits, target.score(tree).logits)


def test_the_number_of_threads_changes_no_bit(folder, threads):
    found = []
    for count in (1, 2, 3):
        threads(count)
        model = Int8Model(checkpoint(folder, "qwen3"))
        target = model.open()
        target.sync(text(random.Random(0), 30))
        found.append(target.score(random_tree(random.Random(1), VOCAB, 12, 4)).logits)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


HASH = """
import hashlib, random, sys
from specviz.core.threads import set_thread_count, thread_count
from specviz.core import DraftTree
from specviz.kernels.vector import ISA
from specviz.targets.int8 import Int8Model
key = hashlib.sha256()
for folder in sys.argv[1:]:
    target = Int8Model(folder).open()
    target.sync(list(range(3, 30)))
    tree = DraftTree((5, 6, 7, 8, 9), (-1, 0, 0, 2, -1), (-1,) * 5)
    key.update(target.score(tree).logits.numpy().tobytes())
print(ISA, key.hexdigest())
"""


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_every_instruction_set_of_this_machine_gives_the_same_bits(folder, tmp_path, every):
    """Each set is compiled anew, which takes the time: the fastest and the plain one show a difference first."""
    folders = [str(checkpoint(folder, kind)) for kind in ("llama", "qwen3")]
    found = {}
    sets = available_instruction_sets()
    for isa in sets if every else {sets[0], sets[-1]}:
        ran = subprocess.run(
            [sys.executable, "-c", HASH, *folders],
            env={**os.environ, "SPECVIZ_KERNEL_ISA": isa, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        used, found[isa] = ran.stdout.split()
        assert used == isa
    assert len(found) >= 2 and len(set(found.values())) == 1
