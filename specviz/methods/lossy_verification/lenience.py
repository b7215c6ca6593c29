"""Lenience: accept with probability min(1, p / (lenience q)), so that tokens a little less probable under
the target also pass (Leviathan et al. 2211.17192, appendix A.5). Faster, and no longer the target's
distribution; the deviation is measured at every token."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, lenience: float) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...policies import Fixed
    from ...verifiers import Lenient

    return Parts(DraftChain(kit.open("draft")), Fixed(gamma), Lenient(lenience))


METHOD = Method(
    key="lenience",
    title="Lenient acceptance",
    paper="Leviathan et al. 2023, arXiv 2211.17192",
    summary="Accepts drafted tokens more readily than is fair: more speed, and text the target alone would not have written.",
    exactness="approximate",
    knobs=(
        Knob(
            "lenience",
            0.5,
            0.05,
            1.0,
            "a token passes as if the target liked it 1/l times as much; 1 is exact",
        ),
        Knob("gamma", 4, 1, 16, "tokens drafted a round"),
    ),
    needs=frozenset({"draft"}),
    look="The drift: how far the distribution really followed is from the target's, in nats, at every token.",
    wins="Where a near miss is good enough and speed matters more than fidelity.",
    loses="The text is the draft model's as much as the target's: facts and style slip first.",
    differs="The paper does not define what is sampled after a rejection; here it is the residual of the target's own distribution.",
    compared="formula",
    claims=(
        Claim(
            "A lenient rule keeps more of the same drafts.",
            "speculative",
            "equal_drafts",
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
