"""Hidden Transfer: at some intermediate layers, matrices map the last token's hidden state to pseudo hidden
states of future tokens, which run through the remaining layers (Wu et al. 2404.12022). Candidates are
chosen: exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, nodes: int, depth: int) -> Parts:
    from ....drafters.heads.in_target import InTargetTree, uniform_plan
    from ....drafters.heads.shapes import shape_for_heads
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    heads = kit.head("hidden_transfer")
    shape = shape_for_heads(heads.accuracy, nodes, heads.nodes)
    return Parts(
        InTargetTree(heads, uniform_plan(shape, min(depth, len(heads)))),
        Fixed(depth, 10, len(shape)),
        TokenRejection(),
    )


METHOD = Method(
    key="hidden_transfer",
    title="Hidden Transfer",
    paper="Wu et al. 2024, arXiv 2404.12022",
    summary="Turns the last token's inner state into made-up states of the next tokens, which the rest of the model reads as its own.",
    knobs=(
        Knob("nodes", 2, 0, 64, "nodes of the tree; 0: as many as it was calibrated for"),
        Knob("depth", 2, 1, 6, "pseudo states after a candidate, as far as they were trained"),
    ),
    needs=frozenset({"head:hidden_transfer", "entry", "tree"}),
    look="At which layer each pseudo state enters: it has seen what the layers below made of the text, which Medusa's heads have not.",
    wins="Guesses two and three tokens ahead: the model's own upper layers work on them.",
    loses="Rows: a pass carries several for every candidate, whether or not it turns out to be the last.",
    differs="Only the paper's abstract was available. The choice of layers, the loss and the tree are ours.",
    aliases=("hidden transfer", "FIRP"),
    trains=(
        Trained(
            "hidden_transfer",
            "Matrices that turn an inner hidden state into pseudo states of the next tokens.",
            "specviz.models.in_target",
        ),
    ),
    claims=(
        Claim(
            "Transferred states save passes without a draft model.",
            "autoregressive",
            "accepted_length",
            figure="better than Medusa and self-speculative decoding",
            place="abstract of 2404.12022",
            tokens=40,
            knobs={"nodes": 4},
        ),
    ),
    build=build,
)
