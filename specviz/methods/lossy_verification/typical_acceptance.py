"""Typical acceptance: keep a drafted token if its target probability exceeds a threshold that falls with
the entropy of the distribution (Medusa, Cai et al. 2401.10774; after typical sampling, Hewitt et al.
2210.15191)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import TYPICAL_ACCEPTANCE


def build(kit, gamma: int, floor: float, share: float, last: str) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...policies import Fixed
    from ...verifiers import Typical

    return Parts(DraftChain(kit.open("draft")), Fixed(gamma), Typical(floor, share, last))


METHOD = Method(
    key="typical_acceptance",
    title="Typical acceptance",
    paper="Cai et al. 2024, arXiv 2401.10774",
    summary="Keeps every drafted token the target finds plausible, instead of holding the draft to the target's exact distribution.",
    exactness="approximate",
    knobs=(
        *TYPICAL_ACCEPTANCE,
        Knob("gamma", 4, 1, 16, "tokens drafted a round"),
    ),
    needs=frozenset({"draft"}),
    look="Tokens kept although the target preferred others; the drift says by how much.",
    wins="At temperature above 0, where the exact rule refuses good tokens by chance.",
    loses="It narrows the text to what is plausible: less variety than the target has. At temperature 0 it is exact.",
    differs="The rule is Medusa's; here it verifies a draft model's chain.",
    claims=(
        Claim(
            "Typical acceptance keeps more of the same drafts than the exact rule.",
            "speculative",
            "equal_drafts",
            figure="2.2 times faster without it, 2.8 with joint training",
            place="full-paper notes on 2401.10774",
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
