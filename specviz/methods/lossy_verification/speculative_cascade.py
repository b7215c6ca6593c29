"""Speculative cascades: drafted tokens are verified against a mixture of draft and target that prefers the
draft's token where the target gives it nearly the probability of its own top-1 token (Narasimhan et al.
2405.19261)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, alpha: float, gamma: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...policies import Fixed
    from ...verifiers.cascade import CascadeRejection

    return Parts(DraftChain(kit.open("draft")), Fixed(gamma), CascadeRejection(alpha))


METHOD = Method(
    key="speculative_cascade",
    title="Speculative cascade",
    paper="Narasimhan et al. 2024, arXiv 2405.19261",
    summary="Keeps a drafted token wherever the target gives it nearly as much probability as its own best token, and asks the target "
    "everywhere else.",
    exactness="approximate",
    knobs=(
        Knob(
            "alpha",
            0.3,
            0.0,
            1.0,
            "a token is kept when its probability is at least 1 - alpha times the best one's; 0 is exact at "
            "temperature 0",
        ),
        Knob("gamma", 4, 1, 16, "tokens drafted a round"),
    ),
    needs=frozenset({"draft"}),
    look="The drift: at each position, how far the mixture is from the target's distribution, in nats.",
    wins="Where the draft is as good as the target on easy tokens: they are kept without a rejection.",
    loses="The text is no longer the target's. With a large alpha the draft model decides wherever the target is undecided.",
    differs="The token-specific rule of the paper. Its other rules compare the two models' confidence per position.",
    compared="formula",
    aliases=("SpecCascade", "cascade"),
    relative="speculative",
    claims=(
        Claim(
            "A deferral test keeps more of the same drafts than the exact rule.",
            "speculative",
            "equal_drafts",
            figure="better cost and quality than speculative decoding",
            place="abstract of 2405.19261",
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
