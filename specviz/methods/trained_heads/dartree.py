"""DARTree: Domino's correction expanded over a tree, one batch per depth, then the best nodes kept
(2608.13524). Nothing is trained. Nodes are chosen, so each is accepted with its target probability: exact
at every temperature."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, nodes: int, depth: int, width: int) -> Parts:
    from ...drafters.heads.level_tree import LevelTree
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        LevelTree(kit.head("dflash"), kit.head("domino"), width, nodes, width),
        Fixed(depth, width, nodes),
        TokenRejection(),
    )


METHOD = Method(
    key="dartree",
    title="DARTree",
    paper="DARTree 2026, arXiv 2608.13524",
    summary="A tree in which every node was corrected by the path above it, grown level by level from one drafted block.",
    knobs=(
        Knob("nodes", 5, 1, 64, "nodes that are verified; the authors verify 64 on a GPU"),
        Knob("depth", 2, 1, 15, "most levels, as far as the block was trained"),
        Knob(
            "width",
            3,
            1,
            12,
            "paths kept at each level of the wide tree, from which the nodes are chosen; the authors keep 12",
        ),
    ),
    needs=frozenset({"head:dflash", "head:domino", "tap:layer", "embed", "head", "tree"}),
    look="What a node's path makes of its probability, beside what the block's independent positions would say.",
    wins="Cheap verification, and text where the second choice at one position changes all positions after it.",
    loses="Where the correction is no better than the block's own predictions, DDTree's tree costs less to build.",
    differs="The tree of the authors' pruned variant (magneto0124/DARTree 0ceefcd): fixed width per depth, then the best nodes. They "
    "prefer shallow nodes, 0.2 of log-probability a level; ours has no such preference. Both correct and normalise over the 64 top "
    "candidates of a place. Theirs runs Domino's published heads in captured CUDA graphs; the optional n-gram term is left "
    "out.",
    compared="code",
    published={"nodes": 64, "width": 12},
    relative="ddtree",
    claims=(
        Claim(
            "A tree over the corrected block keeps more than its best path.",
            "domino",
            "accepted_length",
            figure="27.9 % faster than Domino",
            place="abstract of 2608.13524",
            tokens=40,
            baseline_knobs={"gamma": 5},
            knobs={"depth": 7, "width": 4},
        ),
    ),
    build=build,
)
