"""A linearised model with Medusa's heads: linear attention with local groups reads a draft tree exactly,
across the border of a group as well (You et al. 2406.07368)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, nodes: int, depth: int) -> Parts:
    from ...drafters.heads.group_tree import GroupTree
    from ...drafters.heads.shapes import shape_for_heads
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    heads = kit.head("medusa")
    shape = shape_for_heads(heads.accuracy, nodes, heads.nodes)
    return Parts(GroupTree(heads, shape), Fixed(depth, 10, len(shape)), TokenRejection())


METHOD = Method(
    key="linearised",
    title="Linear attention with Medusa heads",
    paper="You et al. 2024, arXiv 2406.07368",
    summary="A target whose attention is local within groups and linear across them; heads on it draft a tree that one pass checks.",
    knobs=(
        Knob("nodes", 0, 0, 64, "nodes of the tree; 0: as many as the heads were calibrated for"),
        Knob("depth", 4, 1, 8, "most heads used, one a token ahead"),
    ),
    needs=frozenset({"head:medusa", "head", "tap:final", "tree", "state:groups"}),
    look="Trees that cross the border of a group: their nodes read the group that the tree itself completes as a sum.",
    wins="On long texts: the state has one size, whatever was read, and heads draft for almost nothing.",
    loses="In quality: linear attention remembers less exactly than softmax attention, and copies badly.",
    differs="Attention and convolution are the paper's. Its code loses the group that a draft completes; here the groups of ancestors and "
    "of committed tokens are those of their positions, so the tree equals plain decoding.",
    compared="code",
    published={"nodes": 63},
    aliases=("linearized LLM", "linear attention"),
    claims=(
        Claim(
            "Linear attention and Medusa heads together save passes.",
            "autoregressive",
            "accepted_length",
            figure="up to 2 times faster than other linear attention",
            place="abstract of 2406.07368",
            target="Llama-specviz-linear",
        ),
    ),
    build=build,
)
