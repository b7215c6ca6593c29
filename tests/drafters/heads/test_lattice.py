"""Refined block drafts: the path is the best of all paths through the lattice, by brute force, and the note
tells where it leaves the heads' first choice."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from specviz.core import Budget, Sampling, Scores, State
from specviz.drafters.heads.lattice import BACK, FLOOR, BlockLattice, ModelRescorer, NgramRescorer
from specviz.targets.tiny import TinyNet, TinyTarget

from ...exactness.toys import store

VOCAB, TEXT = (
    12,
    [
        3,
        1,
        4,
        1,
        5,
        9,
        2,
        6,
        5,
        3,
        5,
        8,
        9,
        7,
        9,
        3,
        2,
        3,
        8,
        4,
        6,
        2,
        6,
        4,
        3,
        3,
        8,
        3,
        2,
        7,
        9,
        5,
        0,
        2,
        8,
        8,
    ],
)
LAWS = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Heads:
    """Four heads that say the same whatever they read."""

    def __len__(self):
        return 4

    def __call__(self, state, depth, head):
        return LAWS[:depth]


def drafted(top, refine, width=4, gamma=4):
    drafter, state = BlockLattice(Heads(), top, refine), State([7, 9, 3], Sampling(0.0), limit=20)
    drafter.start(
        state, TinyTarget(TinyNet(VOCAB)), Scores(torch.zeros(1, VOCAB), {"final": torch.zeros(1, 8)})
    )
    tree = drafter.propose(state, Budget(gamma, width))
    ends = [i for i in range(len(tree)) if not tree.children(i)]
    return [tuple(tree.tokens[j] for j in tree.path(i)) for i in ends], state.notes[-1]


def prob(before, token, order):
    """Of an n-gram model, counted afresh."""
    for n in range(min(order - 1, len(before)), -1, -1):
        context = list(before[len(before) - n :])
        places = (
            [i for i in range(len(TEXT) - n + 1) if TEXT[i : i + n] == context] if n else range(len(TEXT) + 1)
        )
        seen = sum(TEXT[i : i + n + 1] == [*context, token] for i in range(len(TEXT) - n))
        if places and seen:
            return max(FLOOR, math.log(seen / len(places)) + BACK * (order - 1 - n))
    return FLOOR


@pytest.mark.parametrize("order, top, paths", [(1, 3, 1), (2, 5, 1), (2, 4, 6), (3, 3, 5)])
def test_ngrams_find_the_best_paths_of_all(order, top, paths):
    logp = LAWS.log_softmax(-1)
    every = {}
    for path in itertools.product(*(row.topk(top).indices.tolist() for row in logp)):
        every[path] = sum(
            float(logp[i, x]) + 0.7 * prob((7, 9, 3, *path[:i]), x, order) for i, x in enumerate(path)
        )
    want = sorted(every, key=lambda path: -every[path])[:paths]
    refine = NgramRescorer(store("text", [TEXT]).array, order, 0.7, paths)
    found, (kind, told) = drafted(top, refine)
    assert set(found) == set(want) and kind == "lattice" and told["paths"] == paths
    assert sum(told["scores"]) == pytest.approx(every[want[0]], abs=2e-3)
    assert tuple(row["tokens"][at] for row, at in zip(told["rows"], told["path"])) == want[0]
    assert told["plain"] == [0] * 4 and (order == 1 or told["path"] != told["plain"]), (
        "the n-grams have a say"
    )
    assert drafted(top, refine, width=1)[0] == want[:1], "a target without trees gets a chain"


def test_a_small_model_chooses_step_by_step_among_the_heads_guesses():
    net = TinyNet(VOCAB, 5, sharp=2.0)
    logp, path = LAWS.log_softmax(-1), []
    for i in range(4):
        said = net.logits([7, 9, 3, *path])[-1].log_softmax(-1)
        path.append(
            max(
                logp[i].topk(5).indices.tolist(),
                key=lambda x: float(logp[i, x]) + 1.5 * max(FLOOR, float(said[x])),
            )
        )
    found, (_, told) = drafted(5, ModelRescorer(TinyTarget(net), 1.5))
    assert found == [tuple(path)] and told["path"] != told["plain"]
    assert drafted(5, ModelRescorer(TinyTarget(net), 0.0))[0] == [tuple(LAWS.argmax(-1).tolist())], (
        "of no weight: the heads' first choice"
    )


def test_a_plain_block_is_the_heads_first_choice():
    found, (kind, told) = drafted(1, None, gamma=3)
    assert found == [tuple(LAWS[:3].argmax(-1).tolist())] and kind == "block"
    assert (
        told["confidence"] == pytest.approx(LAWS[:3].softmax(-1).amax(-1).tolist(), abs=1e-4)
        and told["block"] == 4
    )
