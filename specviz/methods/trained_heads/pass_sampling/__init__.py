"""PaSS, parallel speculative sampling: a few learned embeddings after the text let the target draft for
itself in the pass that verifies the previous draft (Monea et al. 2311.13581). Draft tokens are sampled from
the logits of these positions, so token rejection is exact."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.heads.in_target import InTargetChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(InTargetChain(kit.head("pass_sampling")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="pass_sampling",
    title="PaSS",
    paper="Monea et al. 2023, arXiv 2311.13581",
    summary="A few learned look-ahead embeddings make the model guess later tokens in the very pass that checks the last guesses.",
    knobs=(
        Knob(
            "gamma", 2, 1, 6, "look-ahead tokens used, as far as they were trained; the paper gains up to 6"
        ),
    ),
    needs=frozenset({"head:pass_sampling", "entry"}),
    look="Rounds by turns: after a refusal nothing is drafted, since the positions that guess stand after the last drafted token alone.",
    wins="Where a second model is out of the question: all that is trained is a vector for each token ahead.",
    loses="Often: every refusal costs a round that only guesses, and a position that never saw its predecessor's token guesses badly.",
    differs="From notes on the paper. It was read so that after a rejection the look-ahead tokens follow the new root without a draft.",
    aliases=("PaSS", "parallel speculative sampling", "look-ahead embeddings"),
    trains=(
        Trained(
            "pass_sampling",
            "Look-ahead embeddings, which predict later tokens within the target's forward pass.",
            "specviz.models.in_target",
        ),
    ),
    claims=(
        Claim(
            "Look-ahead tokens save passes without a draft model.",
            "autoregressive",
            "accepted_length",
            figure="up to 30 % faster",
            place="abstract of 2311.13581",
            tokens=40,
        ),
    ),
    build=build,
)
