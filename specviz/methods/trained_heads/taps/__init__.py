"""TAPS: DFlash's tree with its nodes ranked by how probably the verification reaches them, given the path
above; the best subtree within the budget is verified (2606.00487). Nodes are chosen, so each is accepted
with its target probability: exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, nodes: int, width: int, depth: int, depth_cost: float, threshold: float) -> Parts:
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .taps_drafter import ReachTree

    drafter = ReachTree(kit.head("dflash"), width, nodes, kit.head("taps"), depth_cost, threshold)
    return Parts(drafter, Fixed(depth, width, nodes), TokenRejection())


METHOD = Method(
    key="taps",
    title="TAPS",
    paper="Wang et al. 2026, arXiv 2606.00487",
    summary="DFlash's tree, where a small scorer says which nodes the target will reach, so that no token is spent below a dead end.",
    knobs=(
        Knob("nodes", 4, 1, 60, "most nodes of the tree"),
        Knob("width", 3, 1, 10, "most children of a node"),
        Knob("depth", 3, 1, 15, "most levels, as far as the block was trained"),
        Knob(
            "depth_cost",
            0.0,
            0.0,
            1.0,
            "what a further level adds to the cost of a node, in costs of a node at the first",
        ),
        Knob(
            "threshold",
            0.0,
            0.0,
            0.2,
            "the tree ends before the first node whose probability by cost is below this; 0: at the budget",
        ),
    ),
    needs=frozenset({"head:dflash", "head:taps", "tap:layer", "embed", "head", "tree"}),
    look="The two estimates of each node: by the block's positions alone, and given the path above.",
    wins="Expensive verification: the same budget goes to nodes that can be reached, and with a threshold less of it is spent.",
    loses="Where positions hardly depend on each other, it is DDTree with a scorer to pay.",
    differs="Written from descriptions of the paper, whose code was not reachable: softmax over siblings, distilled with a calibration of "
    "the reach. Sizes of the scorer and both cost weights are ours; these are off by default, for equal nodes with DDTree.",
    trains=(
        Trained(
            "taps",
            "A scorer of the children of a node in DFlash's tree.",
            f"{__name__}.taps_network",
            after="dflash",
        ),
    ),
    relative="ddtree",
    claims=(
        Claim(
            "Nodes ranked by the path above them keep more than by independent places.",
            "ddtree",
            "accepted_length",
            figure="7.9 times plain decoding",
            place="abstract of 2606.00487",
            tokens=40,
            baseline_knobs={"depth": 7},
            knobs={"depth": 7, "nodes": 5},
        ),
    ),
    build=build,
)
