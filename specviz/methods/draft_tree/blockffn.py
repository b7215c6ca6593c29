"""BlockFFN: the target has sparse experts, and verification reads only the union of those that its tokens
use (Song et al. 2507.08771)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, width: int, depth: int, nodes: int) -> Parts:
    from ...drafters.model.experts import PricedShape
    from ...policies import Fixed
    from ...trees import sparse_tree
    from ...verifiers import TokenRejection

    return Parts(
        PricedShape(kit.open("draft"), sparse_tree(width, depth, nodes)),
        Fixed(depth, width, nodes),
        TokenRejection(),
    )


METHOD = Method(
    key="blockffn",
    title="BlockFFN",
    paper="Song et al. 2025, arXiv 2507.08771",
    summary="The target has many small experts and uses few of them per token; checking a draft reads only those that its tokens use.",
    knobs=(
        Knob("width", 1, 1, 8, "most alternatives at one place; 1 is a chain"),
        Knob("depth", 4, 1, 16, "most tokens ahead"),
        Knob("nodes", 8, 1, 63, "nodes of the tree; the paper's kernel reads 32 or 64 tokens"),
    ),
    needs=frozenset({"draft", "tree", "experts"}),
    look="The raster of experts and tokens: neighbours share experts, so the bytes read grow more slowly than the draft.",
    wins="Where a pass waits for weights, as on phones: a draft shares most of the experts that its first token loads anyway.",
    loses="A wide tree uses experts that a chain would not. On this small target, loops over experts cost more than the reads they save.",
    differs="The target is trained here, with the paper's router and both losses, at 3.6 million parameters; drafts come from a small "
    "model instead of an EAGLE head. The union also counts experts with a negative routing weight, which the authors' kernel "
    "drops.",
    compared="notes",
    published={"nodes": 31},
    claims=(
        Claim(
            "Tokens of a draft use the same experts: a pass of several reads fewer bytes than as many passes of one.",
            "autoregressive",
            "expert_bytes",
            figure="above 70 % of the experts are idle over 8 tokens",
            place="abstract of 2507.08771",
            target="Llama-specviz-blockffn",
        ),
    ),
    build=build,
)
