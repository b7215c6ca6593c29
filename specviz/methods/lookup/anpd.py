"""Adaptive n-gram parallel decoding: an n-gram model of the prompt and the growing answer drafts token by
token; the target verifies the draft in one pass (Ou et al. 2404.08698)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(kit, gamma: int, ngram: int, least: int, caution: float) -> Parts:
    from ...drafters.lookup.copying import NgramDraft
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        with_cost_gate(NgramDraft(ngram, min(least, ngram)), caution), Fixed(gamma), TokenRejection()
    )


METHOD = Method(
    key="anpd",
    title="Adaptive n-gram (ANPD)",
    paper="Ou et al. 2024, arXiv 2404.08698",
    summary="Counts which token followed which few tokens so far, and drafts the most frequent one each time.",
    knobs=(
        Knob(
            "gamma",
            24,
            1,
            32,
            "most tokens drafted a round (K; the paper's 7); the gate lets through as many as pay",
        ),
        Knob("ngram", 5, 2, 8, "longest n-gram that is counted (N)"),
        Knob(
            "least",
            3,
            2,
            8,
            "shortest n-gram that may draft; the paper's 2 wastes draft tokens on fresh text, where pairs are common",
        ),
        CAUTION,
    ),
    look="The ladder of n-grams: how long a piece of known text stood before each drafted token, and where it backed off.",
    wins="Text that repeats its own phrases, also in new combinations that no single copy would give.",
    loses="On fresh text pairs of common words draft something nearly every round; what is nearly always refused the gate soon keeps back.",
    differs="As published, with our cost gate; ties go to the latest.",
    compared="code",
    published={"gamma": 7, "ngram": 5, "least": 2, "caution": 0.0},
    claims=(
        Claim(
            "N-grams of the running text draft several tokens a pass.",
            "autoregressive",
            "accepted_length",
            figure="up to 3.67 times plain decoding",
            place="abstract of 2404.08698",
            tasks=("edit", "quote", "cite"),
            tokens=40,
        ),
    ),
    build=build,
)
