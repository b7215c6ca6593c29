"""DDTree: a tree over DFlash's predictions (2604.12989). One pass gives a distribution per position; the
most probable paths through them form the tree. Nodes are chosen, so each is accepted with its target
probability: exact at every temperature."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, nodes: int, width: int, depth: int) -> Parts:
    from ...drafters.heads.masked_block import BlockTree
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(BlockTree(kit.head("dflash"), width, nodes), Fixed(depth, width, nodes), TokenRejection())


METHOD = Method(
    key="ddtree",
    title="DDTree",
    paper="Ringel and Romano 2026, arXiv 2604.12989",
    summary="The most likely paths through a block that was drafted in one pass, checked together as a tree.",
    knobs=(
        Knob("nodes", 5, 1, 60, "nodes of the tree; a GPU takes 60"),
        Knob("width", 3, 1, 10, "most children of a node"),
        Knob("depth", 3, 1, 15, "most levels, as far as the block was trained"),
    ),
    needs=frozenset({"head:dflash", "tap:layer", "embed", "head", "tree"}),
    look="The whole tree comes from one pass: compare it with EAGLE-2's, which pays a pass for each level.",
    wins="Cheap verification: where a pass of eight tokens costs little more than one of five, second guesses at the first "
    "positions are worth more than a longer chain.",
    loses="Where every token in the pass costs much, a chain is quicker. Its positions are independent, so it cannot tell "
    "two continuations apart.",
    differs="As published, but for the number of nodes, which is small enough for two cores, and ``width``, which the paper does not "
    "limit.",
    claims=(
        Claim(
            "A tree over the block keeps more than its best path.",
            "dflash",
            "accepted_length",
            figure="8.22 times plain decoding, DFlash 6.09 (HumanEval, Qwen3-30B)",
            place="the authors' page for 2604.12989",
            knobs={"depth": 7, "nodes": 12, "width": 4},
            tokens=40,
            baseline_knobs={"gamma": 5},
        ),
    ),
    build=build,
)
