"""TreeFlash: DFlash's block corrected for every likely token before each position, in two stages of one
pass; the most probable paths form the tree (2606.03819). Nodes are chosen, so each is accepted with its
target probability: exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, nodes: int, width: int, depth: int, previous: int) -> Parts:
    from ....drafters.heads.masked_block import BlockTree
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    correction = kit.head("treeflash").with_previous(previous)
    return Parts(
        BlockTree(kit.head("dflash"), width, nodes, correction), Fixed(depth, width, nodes), TokenRejection()
    )


METHOD = Method(
    key="treeflash",
    title="TreeFlash",
    paper="Rheinboldt et al. 2026, arXiv 2606.03819",
    summary="A tree over DFlash's block in which every position knows the token before it, still without a further pass.",
    knobs=(
        Knob("nodes", 4, 1, 60, "nodes of the tree"),
        Knob("width", 3, 1, 16, "most children of a node; the authors' code allows 16"),
        Knob("depth", 3, 1, 15, "most levels, as far as the block was trained"),
        Knob(
            "previous",
            4,
            1,
            16,
            "top tokens of a position after which the next is corrected; the authors correct 16",
        ),
    ),
    needs=frozenset({"head:dflash", "head:treeflash", "tap:layer", "embed", "head", "tree"}),
    look="Two branches with different continuations, though both come from one block: compare with DDTree, which repeats itself.",
    wins="Where products with the output matrix are cheap: one batch of products, no chain of steps.",
    loses="On two cores every correction costs a product with the output matrix, which DDTree does not.",
    differs="The network is the authors', with their names of weights, trained here over a frozen DFlash; theirs has the width of the "
    "drafter's feed-forward block.",
    compared="code",
    published={"previous": 16, "width": 16},
    trains=(
        Trained(
            "treeflash",
            "A correction of DFlash's states by the token before.",
            f"{__name__}.treeflash_network",
            after="dflash",
        ),
    ),
    relative="ddtree",
    claims=(
        Claim(
            "Places that see the token before them make a better tree than independent ones.",
            "ddtree",
            "accepted_length",
            figure="12 % more tokens a pass",
            place="abstract of 2606.03819",
            tokens=40,
            baseline_knobs={"depth": 7},
            knobs={"depth": 7, "nodes": 5},
        ),
    ),
    build=build,
)
