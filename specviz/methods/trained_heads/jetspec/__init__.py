"""JetSpec: a tree over a block whose positions attend to earlier positions only, as the target's do
(2606.18394). Nodes are chosen, so each is accepted with its target probability: exact at every
temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, nodes: int, width: int, depth: int) -> Parts:
    from ....drafters.heads.masked_block import BlockTree
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(BlockTree(kit.head("jetspec"), width, nodes), Fixed(depth, width, nodes), TokenRejection())


METHOD = Method(
    key="jetspec",
    title="JetSpec",
    paper="Hu et al. 2026, arXiv 2606.18394",
    summary="A tree over a block that was drafted in one pass with causal attention: a position never looks at the positions after it.",
    knobs=(
        Knob("nodes", 5, 1, 64, "nodes of the tree; the authors verify 63 to 255 on a GPU"),
        Knob("width", 3, 1, 10, "most children of a node; the authors take 7"),
        Knob("depth", 7, 1, 15, "most levels, as far as the block was trained"),
    ),
    needs=frozenset({"head:jetspec", "tap:layer", "embed", "head", "tree"}),
    look="Compare with DDTree, which builds the same kind of tree over DFlash's block, whose positions look both ways.",
    wins="Cheap verification, as for DDTree; short blocks cost nothing in quality, as no position reads a later one.",
    loses="Where every token in the pass costs much. The tree is scored by each position alone, so siblings get the same children.",
    differs="As the authors' engine: their causal block drafter, trained with forward KL, and best-first trees by summed "
    "log-probabilities. We add the best node each time, they all children of the best node. Trained from DFlash's "
    "weights: the attention of each layer, the rest is shared. Their conditioned passes, one for each path, are left out.",
    compared="code",
    published={"nodes": 63, "width": 7},
    aliases=("jetspec", "jetflow"),
    trains=(
        Trained(
            "jetspec",
            "A block drafter whose positions attend to earlier positions only.",
            f"{__name__}.jetspec_network",
            after="dflash",
            one_pass=True,
        ),
    ),
    relative="ddtree",
    claims=(
        Claim(
            "Causal attention in the block makes a better tree than independent places.",
            "ddtree",
            "accepted_length",
            tokens=40,
            baseline_knobs={"depth": 7},
        ),
    ),
    build=build,
)
