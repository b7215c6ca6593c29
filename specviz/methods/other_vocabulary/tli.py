"""TLI: the draft distribution is restricted to tokens in both vocabularies, so that the usual rejection
rule is exact (Timor et al. 2502.05202). The supports differ; the residual covers tokens the draft cannot
propose."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ...drafters.vocabulary.chains import Intersection
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        Intersection(kit.open("other_draft"), kit.bridge("other_draft")), Fixed(gamma), TokenRejection()
    )


METHOD = Method(
    key="tli",
    title="Shared tokens (TLI)",
    paper="Timor et al. 2025, arXiv 2502.05202",
    summary="The draft speaks another vocabulary but is held to the words both share, so that probabilities can be compared.",
    knobs=(Knob("gamma", 2, 1, 16, "tokens drafted a round"),),
    needs=frozenset({"other_draft"}),
    look="The overlap: which share of the draft's tokens the target has, too.",
    wins="At temperature above 0, when the two vocabularies share most of what is written.",
    loses="Whatever is spelled with tokens of the target alone must come from the target.",
    differs="As published.",
    compared="code",
    aliases=("use_heterogeneous_vocab", "universal assisted"),
    claims=(
        Claim(
            "Above temperature 0 the shared part of two vocabularies, sampled, is kept more often than exact matches of text.",
            "slem",
            "kept_share",
            figure="up to 2.8 times plain decoding (the paper's three methods)",
            place="abstract of 2502.05202",
            knobs={"gamma": 2},
            baseline_knobs={"gamma": 2},
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
