"""SpecDiff-2: several chains from one pass of the diffusion drafter, verified as a tree (2511.00606).
Positions are independent given the text, so the chains are independent samples, and multi-step rejection is
exact."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, chains: int) -> Parts:
    from ...drafters.heads.diffusion import DiffusionPaths
    from ...policies import Fixed
    from ...verifiers import MultiStep

    return Parts(
        DiffusionPaths(kit.head("specdiff"), chains), Fixed(gamma, chains, gamma * chains), MultiStep()
    )


METHOD = Method(
    key="specdiff2",
    title="SpecDiff-2 (several chains)",
    paper="SpecDiff-2 2025, arXiv 2511.00606",
    summary="One pass of the diffusion drafter, several chains drawn from it; the target checks all of them as one tree.",
    knobs=(
        Knob(
            "gamma", 2, 1, 16, "tokens of a chain, as far as the block was trained; the authors take 8 to 16"
        ),
        Knob("chains", 3, 1, 8, "chains drawn a round; each adds its tokens to the target's pass"),
    ),
    needs=frozenset({"head:specdiff", "embed", "tree"}),
    look="Chains that part at their first token: every one comes from the same pass, so only the target's pass grows.",
    wins="Where more tokens in the target's pass cost little, and at temperatures near 1, where one chain is often wrong.",
    loses="On a processor each token in the target's pass costs; a position does not know what its chain wrote before it.",
    differs="Chains, their order and the rejection rule are the authors'; a residual of zero cannot occur here, where theirs falls back "
    "to a uniform draw. The drafter is SpecDiff's of this project, without their streak distillation, and the target's pass "
    "runs once.",
    compared="code",
    published={"gamma": 8, "chains": 8},
    aliases=("streak distillation", "diffusion tree"),
    claims=(
        Claim(
            "Several chains of the block keep more than one.",
            "specdiff",
            "accepted_length",
            figure="4.22 times plain decoding on average",
            place="abstract of 2511.00606",
            baseline_knobs={"gamma": 3},
            temperature=1.0,
            tokens=40,
            knobs={"gamma": 3},
        ),
    ),
    build=build,
)
