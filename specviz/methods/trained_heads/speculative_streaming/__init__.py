"""Speculative Streaming, lossless mode: in the target's last layers, extra streams next to each token's
hidden state predict the tokens after the next; the frozen target verifies them (Bhendawade et al.
2402.11131). Candidates are chosen: exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, depth: int, top: int, least: float) -> Parts:
    from ....drafters.heads.in_target import StreamTree, uniform_plan
    from ....policies import Fixed
    from ....trees import full_tree
    from ....verifiers import TokenRejection

    heads = kit.head("speculative_streaming")
    shape = full_tree((top,) * min(depth, len(heads)))
    return Parts(
        StreamTree(heads, uniform_plan(shape, len(heads)), least),
        Fixed(depth, top, len(shape)),
        TokenRejection(),
    )


METHOD = Method(
    key="speculative_streaming",
    title="Speculative Streaming",
    paper="Bhendawade et al. 2024, arXiv 2402.11131",
    summary="In the model's last layers extra streams run ahead of the text; they draft the next tree while this one is checked.",
    knobs=(
        Knob("depth", 2, 1, 4, "tokens ahead, a stream each, as far as they were trained; the paper takes 3"),
        Knob("top", 2, 1, 4, "tokens of each stream; the tree has every combination"),
        Knob(
            "least",
            0.02,
            0.0,
            0.5,
            "chance, by the layers below the streams, under which a candidate is dropped; 0: none is",
        ),
    ),
    needs=frozenset({"head:speculative_streaming", "entry", "tree"}),
    look="Candidates dropped before they cost a stream, and at which layer the streams begin.",
    wins="Where a second model is out of the question: some vectors, and a matrix of rank 8 for pruning.",
    loses="Rows: each candidate that is kept brings all its streams along.",
    differs="The paper trains its model together with the streams; in the lossless mode the model is unchanged, and only the "
    "streams' inputs are trained; for the chat model a matrix of rank 128 changes the state, where the paper's runs leave it as it "
    "is. The paper gives neither a threshold for pruning nor the streams' positions; here a stream has the "
    "position of the token it predicts.",
    published={"depth": 3},
    aliases=("Speculative Streaming",),
    trains=(
        Trained(
            "speculative_streaming",
            "Streams beside the states of the last layers, which run ahead of the text.",
            "specviz.models.in_target",
        ),
    ),
    claims=(
        Claim(
            "Streams in the target draft in the pass that verifies.",
            "autoregressive",
            "accepted_length",
            figure="1.8 to 3.1 times plain decoding",
            place="abstract of 2402.11131",
            tokens=40,
        ),
    ),
    build=build,
)
