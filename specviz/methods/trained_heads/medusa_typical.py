"""Medusa with its paper's own rule: typical acceptance keeps drafts whose target probability exceeds an
entropy-dependent threshold (Cai et al. 2401.10774, section 2.3.1). Faster at temperatures above 0, and no
longer the target's distribution; exact at temperature 0."""

from __future__ import annotations

from ...core import Method, Parts
from ...core.claim import Claim
from . import TYPICAL_KNOBS


def build(kit, floor: float, share: float, last: str, nodes: int, depth: int) -> Parts:
    from ...drafters.heads.last_state import MedusaTree
    from ...drafters.heads.shapes import shape_for_heads
    from ...policies import Fixed
    from ...verifiers import Typical

    heads = kit.head("medusa")
    shape = shape_for_heads(heads.accuracy, nodes, heads.nodes)
    return Parts(MedusaTree(heads, shape), Fixed(depth, 10, len(shape)), Typical(floor, share, last))


METHOD = Method(
    key="medusa_typical",
    title="Medusa, typical acceptance",
    paper="Cai et al. 2024, arXiv 2401.10774",
    summary="Medusa's tree, judged as its authors do: a guess stays when the target finds it plausible.",
    exactness="approximate",
    knobs=TYPICAL_KNOBS,
    needs=frozenset({"head:medusa", "head", "tap:final", "tree"}),
    look="Guesses kept although the target preferred others; the drift says by how much.",
    wins="At temperatures above 0, where the exact rule refuses good guesses by chance.",
    loses="The text becomes plainer than the target's own. At temperature 0 it gains nothing over the exact rule.",
    differs="As published; the tree is calibrated on the embedded target's answers for its own heads.",
    compared="code",
    aliases=("medusa", "typical_acceptance_sampler"),
    claims=(
        Claim(
            "Typical acceptance keeps more of the same drafts than the exact rule.",
            "medusa",
            "equal_drafts",
            figure="higher acceptance at kept quality",
            place="abstract of 2401.10774",
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
