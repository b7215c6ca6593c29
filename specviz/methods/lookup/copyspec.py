"""CopySpec: if the last few tokens occurred earlier in the text, copy a block from there; a hash table of
all positions makes the lookup constant-time (Dumitru et al. 2502.08923)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(kit, gram: int, block: int, occurrence: str, caution: float) -> Parts:
    from ...drafters.lookup.copying import GramCopy
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        with_cost_gate(GramCopy(gram, occurrence == "latest"), caution), Fixed(block), TokenRejection()
    )


METHOD = Method(
    key="copyspec",
    title="CopySpec",
    paper="Dumitru et al. 2025, arXiv 2502.08923",
    summary="Waits until the last tokens are a repetition, then copies a block from where they stood first.",
    knobs=(
        Knob(
            "gram",
            2,
            1,
            10,
            "tokens that must repeat before anything is copied (the paper's 3); the gate learns which to trust",
        ),
        Knob(
            "block",
            32,
            1,
            64,
            "most tokens copied a round (the paper's 10); the gate lets through as many as pay",
        ),
        Knob(
            "occurrence",
            "first",
            choices=("first", "latest"),
            help="which of several occurrences to copy; the first is the paper's",
        ),
        CAUTION,
    ),
    look="Whole blocks carried over from an earlier turn, and rounds without any draft in between.",
    wins="Second turns that rewrite, shorten or translate code and text of the first: it drafts only when it is likely right.",
    loses="Where nothing repeats it never drafts, which also costs nothing: it is plain decoding then.",
    differs="As published, with our cost gate; sampling is exact, too.",
    compared="code",
    published={"gram": 3, "block": 10, "caution": 0.0},
    claims=(
        Claim(
            "Copying what followed the same words before saves passes.",
            "autoregressive",
            "accepted_length",
            figure="up to 2.35 times plain decoding on CNN/DM",
            place="abstract of 2502.08923",
            tasks=("edit", "quote", "cite"),
            tokens=40,
        ),
    ),
    build=build,
)
