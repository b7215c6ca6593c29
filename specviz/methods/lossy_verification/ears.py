"""EARS: relax rejection sampling where the target itself is unsure (Sun et al. 2512.13194)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, tolerance: float) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...policies import Fixed
    from ...verifiers import UncertaintyTolerant

    return Parts(DraftChain(kit.open("draft")), Fixed(gamma), UncertaintyTolerant(tolerance))


METHOD = Method(
    key="ears",
    title="EARS (adaptive rejection)",
    paper="Sun et al. 2025, arXiv 2512.13194",
    summary="Lowers the bar for a draft token where the target is unsure, and keeps it where the target is sure.",
    exactness="approximate",
    knobs=(
        Knob(
            "tolerance",
            0.3,
            0.0,
            1.0,
            "how far the bar falls where the target is completely unsure; 0 is exact",
        ),
        Knob("gamma", 4, 1, 16, "tokens drafted a round"),
    ),
    needs=frozenset({"draft"}),
    look="At temperature 0 it is the exact rule. Above it: the drift is where the target was unsure.",
    wins="Open questions at higher temperatures, where exact sampling rejects drafts that would have done.",
    loses="The target's doubt is not a licence: a name that is one of many possible ones may be the draft's.",
    differs="The rule of the abstract and of vllm-ascend's description. After a rejection the exact rule's residual is sampled; the "
    "sources in reach do not say what theirs is.",
    relative="lenience",
    aliases=("VLLM_EARS_TOLERANCE", "efficient adaptive rejection sampling"),
    claims=(
        Claim(
            "A tolerance where the target is unsure keeps more of the same drafts.",
            "speculative",
            "equal_drafts",
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
