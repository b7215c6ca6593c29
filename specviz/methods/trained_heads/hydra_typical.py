"""Hydra with its paper's rule at temperatures above 0, Medusa's typical acceptance (Ankner et al.
2402.05109): drafts whose target probability exceeds an entropy-dependent threshold are kept. Faster there,
and no longer the target's distribution; exact at temperature 0."""

from __future__ import annotations

from ...core import Method, Parts
from ...core.claim import Claim
from . import TYPICAL_KNOBS


def build(kit, floor: float, share: float, last: str, nodes: int, depth: int) -> Parts:
    from ...drafters.heads.last_state import HydraTree
    from ...drafters.heads.shapes import shape_for_heads
    from ...policies import Fixed
    from ...verifiers import Typical

    heads = kit.head("hydra")
    shape = shape_for_heads(heads.accuracy, nodes, heads.nodes)
    return Parts(HydraTree(heads, shape), Fixed(depth, 10, len(shape)), Typical(floor, share, last))


METHOD = Method(
    key="hydra_typical",
    title="Hydra, typical acceptance",
    paper="Ankner et al. 2024, arXiv 2402.05109; Cai et al. 2024, arXiv 2401.10774",
    summary="Hydra's tree under Medusa's rule, as its authors judge it at temperatures above 0: a plausible guess stays.",
    exactness="approximate",
    knobs=TYPICAL_KNOBS,
    needs=frozenset({"head:hydra", "head", "embed", "tap:final", "tree"}),
    look="Guesses kept although the target preferred others; the drift says by how much.",
    wins="At temperatures above 0, where the exact rule refuses good guesses by chance.",
    loses="The text becomes plainer than the target's own. At temperature 0 it gains nothing over the exact rule.",
    differs="As published; the tree is calibrated on the embedded target's answers for its own heads.",
    claims=(
        Claim(
            "Typical acceptance keeps more of the same drafts than the exact rule.",
            "hydra",
            "equal_drafts",
            figure="2.71 times plain decoding",
            place="abstract of 2402.05109",
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
