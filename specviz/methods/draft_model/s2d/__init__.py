"""S2D: a sorted draft model, one network with nested sub-models; each token is drafted by the smallest one
that is confident enough (Kavehzadeh et al. 2407.01955). The choice depends on distributions only, before a
token is sampled, so the output stays exact."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim

SIZES = {"adaptive": None, "half": 0, "three quarters": 1, "whole": -1}


def build(kit, gamma: int, size: str, sure: float) -> Parts:
    from ....drafters.model.nested import NestedChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(NestedChain(kit.open("draft:s2d"), SIZES[size], sure), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="s2d",
    title="S2D (sorted draft)",
    paper="Kavehzadeh et al. 2024, arXiv 2407.01955",
    summary="One draft model that can stop half-way through its layers: easy tokens come from its first layers, hard ones from all.",
    knobs=(
        Knob("gamma", 2, 1, 16, "tokens drafted a round"),
        Knob(
            "size",
            "adaptive",
            choices=tuple(SIZES),
            help="which part of the draft's layers drafts: one size for all tokens, or for each "
            "token the smallest that is sure",
        ),
        Knob(
            "sure",
            0.6,
            0.0,
            1.0,
            "a sub-model with a lower top-1 probability hands over to the next larger one",
        ),
    ),
    needs=frozenset({"draft:s2d"}),
    look="Which size wrote each token and how sure it was; hard tokens climb to a larger one.",
    wins="When the draft is deep enough that leaving half of it out is felt, and most tokens are easy.",
    loses="With a shallow draft: what a small size saves, asking a second one costs again.",
    differs="The sizes are the paper's: half, three quarters and all. It does not give the confidence threshold; ours is 0.6. A larger "
    "size recomputes the tokens from its first layer, where the authors may continue from the smaller size's states.",
    aliases=("sorted speculative decoding", "nested exits", "many-in-one draft"),
    trains=(
        Trained("s2d", "A draft model with sizes inside each other, which share layers.", after="draft"),
    ),
    claims=(
        Claim(
            "Sorted sub-models draft with fewer layers.",
            "s2d",
            "draft_layers",
            figure="1.21 times plain decoding, 1.07 with all draft layers (7B)",
            place="the authors' plot script for 2407.01955",
            baseline_knobs={"gamma": 4, "size": "whole"},
            knobs={"gamma": 4},
        ),
    ),
    build=build,
)
