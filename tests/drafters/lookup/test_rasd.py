"""RASD: pruning, the union's owners, greedy equality and the exact distribution with drawn and retrieved
siblings."""

from __future__ import annotations

import torch

from specviz.core import DraftTree, TreeBuilder
from specviz.drafters.lookup.rasd import prune
from specviz.methods.lookup import rasd

from .toys import check_distribution, check_greedy, kit, play_all


def test_prune():
    build = TreeBuilder()
    a, b, c = (build.add(token, -1) for token in (1, 2, 3))
    build.add(7, a), build.add(8, b), build.add(9, b)
    tree, first = build.tree(), torch.tensor([0.0, 1.0, 9.0, 5.0])

    def paths(tree):
        return [tuple(tree.tokens[j] for j in tree.path(i)) for i in range(len(tree))]

    assert paths(prune(tree, first, 4, 9)) == paths(tree)
    assert paths(prune(tree, first, 2, 9)) == [(2,), (3,), (2, 8), (2, 9)]
    assert paths(prune(tree, first, 2, 2)) == [(2,), (2, 8)]
    assert len(prune(tree, torch.tensor([9.0, 0, 0, 0]), 1, 9)) == 0
    assert len(prune(DraftTree(), first, 4, 9)) == 0


def test_greedy():
    kits = [kit(vocab, seed) for vocab, seed in ((4, 0), (12, 1), (2, 3))]
    assert check_greedy(rasd.METHOD, kits, ([1], [1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 1, 0, 0]), 32) > 1.2
    assert check_greedy(rasd.METHOD, kits[:1], ([1],), 32, top=1, found=2) > 1


def test_distribution():
    check_distribution(rasd.METHOD, kit(3), count=2, nodes=2, depth=2, width=2, found=2)
    check_distribution(
        rasd.METHOD, kit(3, sharp=0.7), prompt=(1, 1, 2, 1), count=2, nodes=2, depth=1, found=3
    )


def test_who_proposed_what_is_reported():
    _, outcomes, state = play_all(rasd.METHOD, kit(12, 1), [1, 0, 0, 1, 1, 0, 0], 32)
    reported = [data for kind, data in state.notes if kind == "fused"]
    assert [len(data["by"]) for data in reported] == [len(o.tree) for o in outcomes]
    assert {name for data in reported for name in data["by"]} == {"draft", "retrieved", "both"}
