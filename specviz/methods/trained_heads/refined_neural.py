"""Blockwise drafts rescored by a small language model: each token maximises the sum of the heads' and the
model's scores (Kim et al. 2404.09221, local rescoring). The path is chosen, not sampled, so verification is
exact at every temperature."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, top: int, weight: float) -> Parts:
    from ...drafters.heads.lattice import BlockLattice, ModelRescorer
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        BlockLattice(kit.head("blockwise"), top, ModelRescorer(kit.open("draft"), weight)),
        Fixed(gamma),
        TokenRejection(),
    )


METHOD = Method(
    key="refined_neural",
    title="Refined block drafts, neural",
    paper="Kim et al. 2024, arXiv 2404.09221",
    summary="Heads guess a block at once; a small model walks through their best guesses and takes those that follow from each other.",
    knobs=(
        Knob("gamma", 4, 1, 15, "tokens of the block, as far as heads were trained"),
        Knob("top", 8, 1, 16, "guesses of each position; the paper takes 16"),
        Knob(
            "weight", 1.0, 0.0, 4.0, "of the small model against the heads; the paper tunes it for each task"
        ),
    ),
    needs=frozenset({"head:blockwise", "draft", "head", "tap:final"}),
    look="Where the chosen path leaves the heads' first choice, and whether the target agrees.",
    wins="A small model that is too weak to draft alone: it only chooses among what the target's own heads propose.",
    loses="On a processor: the small model pays a pass a token, as if it drafted alone.",
    differs="Scores are log-linear; the paper says that it interpolates, but not in which space. Its rescorers were trained for this; "
    "here the target's draft model is used.",
    published={"top": 16},
    aliases=("block draft refinement", "neural rescoring"),
    claims=(
        Claim(
            "A small language model chooses better drafts from the heads' candidates.",
            "blockwise",
            "accepted_length",
            figure="longer accepted on all tasks",
            place="abstract of 2404.09221",
            tokens=40,
            baseline_knobs={"gamma": 4},
        ),
    ),
    build=build,
)
