"""Medusa with its paper's own rule: typical acceptance keeps drafts whose target probability exceeds an
entropy-dependent threshold (Cai et al. 2401.10774, section 2.3.1). Faster at temperatures above 0, and no
longer the target's distribution; exact at temperature 0."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


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
    knobs=(
        Knob("floor", 0.09, 0.01, 1.0, "a token of at least this probability always passes"),
        Knob(
            "share",
            0.3,
            0.01,
            1.0,
            "and one of at least this share of exp(-entropy), which is lower where many tokens are likely",
        ),
        Knob(
            "last",
            "argmax",
            choices=("argmax", "typical", "distribution"),
            help="the token after what was kept: the target's best, as the authors' fast mode has it; drawn from those that would pass; "
            "or drawn from the target's whole distribution",
        ),
        Knob(
            "nodes",
            0,
            0,
            64,
            "nodes of the tree; 0: as many as the heads were calibrated for (63 for the authors' heads)",
        ),
        Knob("depth", 4, 1, 8, "most heads used, one a token ahead"),
    ),
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
