"""SVIP: stop drafting where the entropy of the draft distribution is too high (Zhang et al. 2411.18462).
The square root of the entropy is an upper bound of the rejection probability."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, most: int, limit: float, scale: float) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...policies import Entropy
    from ...verifiers import TokenRejection

    return Parts(DraftChain(kit.open("draft")), Entropy(most, limit, scale), TokenRejection())


METHOD = Method(
    key="svip",
    title="SVIP (entropy stop)",
    paper="Zhang et al. 2024, arXiv 2411.18462",
    summary="Drafts on while the small model is sure of itself and stops at the first token it hesitates over.",
    knobs=(
        Knob("limit", 0.3, 0.05, 1.0, "stop when sqrt(scale x entropy) is above this"),
        Knob("scale", 0.15, 0.01, 1.0, "how much refusal an amount of entropy stands for"),
        Knob("most", 16, 1, 40, "longest draft; the paper allows 40"),
    ),
    needs=frozenset({"draft"}),
    look="The entropy line against its threshold: drafts end where it crosses.",
    wins="On text with easy and hard stretches: long drafts in one, short ones in the other.",
    loses="With a draft that is sure and wrong: low entropy is no proof of being right.",
    differs="The rule is the authors'. They compute the entropy before the temperature is applied, and draft up to 40 tokens.",
    compared="code",
    published={"most": 40},
    claims=(
        Claim(
            "An entropy stop costs less modelled time than a fixed length.",
            "speculative",
            "modelled_time",
            figure="up to 20 % faster than fixed lengths on SpecBench",
            place="abstract of 2411.18462",
            baseline_knobs={"gamma": 4},
            temperature=1.0,
        ),
    ),
    build=build,
)
