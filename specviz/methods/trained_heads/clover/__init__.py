"""Clover: Medusa's heads with sequential knowledge, each head's state turned by the token speculated before it (Xiao et al.
2405.00263). The tree is chosen and not drawn, so the check is exact at every temperature.
"""
from __future__ import annotations

from ....core import Knob, Method, Parts


def build(kit, nodes: int, depth: int) -> Parts:
    from .drafter import CloverTree
    from ....drafters.heads.shapes import shape_of
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    heads = kit.head("clover")
    shape = shape_of(heads.accuracy, nodes, heads.nodes)
    return Parts(CloverTree(heads, shape), Fixed(depth, 10, len(shape)), TokenRejection())


METHOD = Method(
    key="clover",
    title="Clover",
    paper="Xiao et al. 2024, arXiv 2405.00263",
    summary="Heads that pass one state along: each lets the last guessed token turn it a little before it guesses the next.",
    knobs=(
        Knob("nodes", 0, 0, 64, "places in the tree; 0: as many as the heads were calibrated for. The paper's timings have 4"),
        Knob("depth", 3, 1, 8, "most heads used, one a token ahead; the paper has 3"),
    ),
    needs=frozenset({"head:clover", "head", "tap:final", "tree"}),
    look="How far each guessed token turns the state: where the gates are near 0 the head guesses as Medusa's would.",
    wins="Many requests at once: small trees whose few nodes hang together.",
    loses="One request with rows to spare: a larger tree of cheaper heads does as well.",
    differs="The paper's figure gates the attention without saying how; the gate here is Clover-2's cosine, one a head. A norm "
            "stands behind the augmenting block. The check is the exact rule.",
    published={"nodes": 4},
    aliases=("Clover",),
    build=build,
)
