"""Medusa: heads on the target's last hidden state predict several tokens ahead at once, and a sparse tree
of their top tokens is verified in one pass (Cai et al. 2401.10774). Nodes are chosen, not sampled, so
verification is exact at every temperature; the paper's own rule, typical acceptance, is the method
``medusa_typical``."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from .. import TREE_NODES


def build(kit, nodes: int, depth: int) -> Parts:
    from ....drafters.heads.last_state import MedusaTree
    from ....drafters.heads.shapes import shape_for_heads
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    heads = kit.head("medusa")
    shape = shape_for_heads(heads.accuracy, nodes, heads.nodes)
    return Parts(MedusaTree(heads, shape), Fixed(depth, 10, len(shape)), TokenRejection())


METHOD = Method(
    key="medusa",
    title="Medusa",
    paper="Cai et al. 2024, arXiv 2401.10774",
    summary="Extra heads on the target guess the next few tokens all at once; a sparse tree of their guesses is checked in one pass.",
    knobs=(
        TREE_NODES,
        Knob("depth", 4, 1, 8, "most heads used, one a token ahead"),
    ),
    needs=frozenset({"head:medusa", "head", "tap:final", "tree"}),
    look="No draft model runs at all. Deeper guesses do not know what stands above them: the same token under every parent.",
    wins="Where drafting must cost almost nothing: a round costs hardly more than a plain pass.",
    loses="A few tokens ahead: each head guesses without seeing the others, so deep paths are seldom right.",
    differs="The tree is as published. Verification is exact; the paper's own rule is in Medusa, typical acceptance.",
    compared="code",
    aliases=("medusa",),
    published={"nodes": 63},
    trains=(
        Trained(
            "medusa",
            "Heads on the last hidden state, each predicting one token further ahead.",
            f"{__name__}.medusa_network",
        ),
    ),
    claims=(
        Claim(
            "Heads on the last state save passes.",
            "autoregressive",
            "accepted_length",
            figure="more than 2.2 times plain decoding",
            place="abstract of 2401.10774",
            tokens=40,
        ),
    ),
    build=build,
)
