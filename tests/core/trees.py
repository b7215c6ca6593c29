"""Random draft trees for the property tests: chains, i.i.d. siblings, siblings without replacement, chosen
ones, mixtures."""

from __future__ import annotations

import random

import torch
from hypothesis import strategies as st

from specviz.core import IID, WITHOUT_REPLACEMENT, DraftTree, TreeBuilder

VOCAB = 5


def grow(seed: int, nodes: int = 12, probes: bool = True) -> DraftTree:
    """A valid tree: per node up to two draws and some chosen children, drawn before chosen; probes may hang
    anywhere."""
    rng = random.Random(seed)
    builder, todo = TreeBuilder(), [-1]
    while todo and len(builder) < nodes:
        parent, kids = todo.pop(0), []
        for how in rng.sample([IID, WITHOUT_REPLACEMENT], rng.randrange(3)):
            probs = torch.tensor([rng.random() + 0.05 for _ in range(VOCAB)], dtype=torch.float64)
            draw, left = builder.begin(probs / probs.sum(), how), list(range(VOCAB))
            for _ in range(rng.randrange(1, 4)):
                token = rng.choice(left)
                if how == WITHOUT_REPLACEMENT:
                    left.remove(token)
                kids.append(builder.add(token, parent, draw))
        kids += [builder.add(rng.randrange(VOCAB), parent) for _ in range(rng.randrange(3))]
        todo += kids
        if probes and rng.random() < 0.3:
            builder.add(-1, parent, probe=True)
    return builder.tree()


def trees(**options):
    return st.integers(0, 10**6).map(lambda seed: grow(seed, **options))


def by_hand(tree: DraftTree) -> DraftTree:
    """The same tree through DraftTree.begin and DraftTree.add."""
    out = DraftTree()
    for probs, how in zip(() if tree.probs is None else tree.probs, tree.drawn):
        out, _ = out.begin(probs, how)
    for i in range(len(tree)):
        out = out.add(tree.tokens[i], tree.parents[i], tree.draw[i], probe=i in tree.probes)
    return out
