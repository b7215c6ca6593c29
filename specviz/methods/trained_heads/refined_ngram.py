"""Blockwise drafts rescored by n-grams: the path through the heads' top tokens with the best combined score
of heads and n-gram model is drafted (Kim et al. 2404.09221, global rescoring). Paths are chosen, not
sampled, so verification is exact at every temperature."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, top: int, order: int, weight: float, paths: int) -> Parts:
    from ...drafters.heads.lattice import BlockLattice, NgramRescorer
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    refine = NgramRescorer(kit.open_store("text").array, order, weight, paths)
    return Parts(
        BlockLattice(kit.head("blockwise"), top, refine), Fixed(gamma, paths, gamma * paths), TokenRejection()
    )


METHOD = Method(
    key="refined_ngram",
    title="Refined block drafts, n-grams",
    paper="Kim et al. 2024, arXiv 2404.09221",
    summary="Heads guess a block at once; an n-gram model then picks the path through their best guesses that reads like text.",
    knobs=(
        Knob("gamma", 2, 1, 15, "tokens of the block, as far as heads were trained"),
        Knob("top", 6, 1, 16, "guesses of each position; the paper takes 16"),
        Knob("order", 2, 1, 4, "tokens of the longest n-gram; the paper has 2 and 4"),
        Knob(
            "weight", 0.3, 0.0, 2.0, "of the n-gram model against the heads; the paper tunes it for each task"
        ),
        Knob("paths", 2, 1, 16, "best paths checked; 1 or 16 in the paper"),
    ),
    needs=frozenset({"head:blockwise", "store:text", "head", "tap:final", "tree"}),
    look="Where the chosen path leaves the heads' first choice: there two guesses did not fit together.",
    wins="Heads that repeat themselves: a repeated word is seldom a seen pair.",
    loses="Text unlike the store: pairs that were never seen drag the path away from what the heads know.",
    differs="Scores are log-linear; the paper says that it interpolates, but not in which space. Its n-grams are of C4; here they are "
    "counted in the project's datastore, with backoff to shorter ones at a fixed penalty.",
    published={"top": 16, "paths": 16},
    aliases=("block draft refinement", "n-gram rescoring"),
    claims=(
        Claim(
            "N-grams choose better drafts from the heads' candidates.",
            "blockwise",
            "accepted_length",
            figure="longer accepted on all tasks",
            place="abstract of 2404.09221",
            tokens=40,
            baseline_knobs={"gamma": 4},
            knobs={"gamma": 4},
        ),
    ),
    build=build,
)
