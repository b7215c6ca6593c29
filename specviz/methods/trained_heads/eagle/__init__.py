"""EAGLE: a one-layer head predicts the target's next hidden state (feature) and drafts a tree of a fixed
shape (Li et al. 2401.15077). At temperatures above 0 children are sampled without replacement and verified
by recursive rejection, which is exact; at temperature 0 they are the top-k tokens."""

from __future__ import annotations

import math

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim

PAPER = (
    "0 1 2 3  00 01 02 10 11 20 21 30  000 001 002 010 011 020 021 100  0000 0001 0002  00000 00001"
).split()


def share(path: str) -> float:
    """Return the estimated probability that the node at ``path``, a string of ranks such as "01", is
    accepted: the product of 0.6 * 0.4**r over its ranks r."""
    return math.prod(0.6 * 0.4 ** int(rank) for rank in path)


def build(kit, nodes: int, depth: int) -> Parts:
    from ....drafters.heads.features import FeatureDrafter
    from ....drafters.model.chain import DraftShape
    from ....policies import Fixed
    from ....trees import Shape
    from ....verifiers import TokenRejection

    within = [path for path in PAPER if len(path) <= depth]
    best = sorted(within, key=lambda path: -share(path))[:nodes]
    shape = Shape.of_paths(tuple(map(int, path)) for path in best).within(depth, 4)
    drafter = FeatureDrafter(kit.head("eagle"), lambda model: DraftShape(model, shape))
    return Parts(drafter, Fixed(depth, 4, nodes), TokenRejection())


METHOD = Method(
    key="eagle",
    title="EAGLE",
    paper="Li et al. 2024, arXiv 2401.15077",
    summary="A single layer guesses the target's next inner states from its last ones; the target's own head turns them into tokens.",
    knobs=(
        Knob(
            "nodes",
            5,
            1,
            25,
            "the best of the paper's 25 nodes, which suit a GPU; with the root five are six tokens, as many as a "
            "CPU without AVX-512 multiplies at once",
        ),
        Knob("depth", 2, 1, 5, "levels that are grown, a pass of the head each; the paper takes 5"),
    ),
    needs=frozenset({"head:eagle", "tap:final", "embed", "head", "tree"}),
    look="Each level of the tree is one pass of the head, fed with its own guesses: watch how far down it stays right.",
    wins="Large targets: one layer is a small share of them, and it sees what the target was about to say.",
    loses="Small targets: the head's layer and the pass through the target's vocabulary are no small share of a whole pass.",
    differs="As published: the authors' tree, sampled without replacement. The default is its best five nodes in two levels.",
    published={"nodes": 25, "depth": 5},
    aliases=("eagle", "EAGLE-1"),
    trains=(
        Trained(
            "eagle",
            "One layer that predicts the next hidden state; for EAGLE and EAGLE-2.",
            "specviz.models.eagle",
        ),
    ),
    claims=(
        Claim(
            "Drafting on states keeps more than independent heads.",
            "medusa",
            "accepted_length",
            figure="3.58 tokens a pass, Medusa 2.31",
            place="Spec-Bench's leaderboard, Vicuna-7B, greedy",
            knobs={"depth": 3, "nodes": 5},
            baseline_knobs={"nodes": 5, "depth": 3},
            tokens=40,
        ),
    ),
    build=build,
)
