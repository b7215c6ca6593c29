"""Hydra: Medusa's heads made sequential, so that each prediction depends on the drafted tokens before it
(Ankner et al. 2402.05109). With a decoder layer before the heads, as in Hydra++, they also read the whole
text. Nodes are chosen, not sampled, so verification is exact."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from .. import TREE_NODES


def build(kit, nodes: int, depth: int) -> Parts:
    from ....drafters.heads.last_state import HydraTree
    from ....drafters.heads.shapes import shape_for_heads
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    heads = kit.head("hydra")
    shape = shape_for_heads(heads.accuracy, nodes, heads.nodes)
    return Parts(HydraTree(heads, shape), Fixed(depth, 10, len(shape)), TokenRejection())


METHOD = Method(
    key="hydra",
    title="Hydra",
    paper="Ankner et al. 2024, arXiv 2402.05109",
    summary="Heads on the target that read their own earlier guesses, so that what they draft hangs together.",
    knobs=(
        TREE_NODES,
        Knob("depth", 4, 1, 8, "most heads used, one a token ahead"),
    ),
    needs=frozenset({"head:hydra", "head", "embed", "tap:final", "tree"}),
    look="Different guesses under different parents, where Medusa repeats itself; the tree is grown a level at a time.",
    wins="Longer accepted paths than Medusa from the same state, for a few small matrices a level.",
    loses="Levels must be drafted one after another, which costs a little more than Medusa's single step.",
    differs="As published, including ungrounded heads. Verification is exact; the paper's own rule is in Hydra, typical acceptance.",
    compared="code",
    aliases=("hydra",),
    published={"nodes": 63},
    trains=(
        Trained(
            "hydra",
            "Heads on the last hidden state that also read the tokens drafted before them.",
            "specviz.models.hydra",
        ),
    ),
    claims=(
        Claim(
            "Heads that see the tokens before them keep more than independent ones.",
            "medusa",
            "accepted_length",
            figure="1.31 times Medusa's throughput",
            place="abstract of 2402.05109",
            knobs={"nodes": 5},
            baseline_knobs={"nodes": 5},
            tokens=40,
        ),
    ),
    build=build,
)
