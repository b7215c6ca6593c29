"""Draft length from the cost ratio: with the acceptance rate and the measured costs of a draft step and a
verification, choose the length with the highest expected tokens per second (Leviathan et al.
2211.17192)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, first: int, most: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...policies import CostRatio
    from ...verifiers import TokenRejection

    return Parts(DraftChain(kit.open("draft")), CostRatio(first, most), TokenRejection())


METHOD = Method(
    key="cost_ratio",
    title="Length from the cost ratio",
    paper="Leviathan et al. 2023, arXiv 2211.17192",
    summary="Measures how often drafts are right and what they cost on this machine, and drafts exactly as far as that pays.",
    knobs=(
        Knob("first", 4, 1, 16, "length of the first drafts, while nothing was measured yet"),
        Knob("most", 12, 1, 32, "longest draft considered"),
    ),
    needs=frozenset({"draft"}),
    look="The length settles within a dozen rounds and then follows the acceptance.",
    wins="On any machine, without tuning gamma.",
    loses="It takes every place for equally hard; rules that look at the draft's confidence can do better.",
    differs="The formula is the paper's. It does not say how acceptance and cost are estimated; here both are measured while decoding.",
    compared="formula",
    by_time=True,
    claims=(
        Claim(
            "The length that fits cost and acceptance costs less modelled time than a long fixed one.",
            "speculative",
            "modelled_time",
            figure="2 to 3 times faster than plain decoding",
            place="abstract of 2211.17192, T5-XXL",
            baseline_knobs={"gamma": 8},
        ),
    ),
    build=build,
)
