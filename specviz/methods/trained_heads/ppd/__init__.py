"""PPD, parallel prompt decoding: learned prompt tokens after every candidate predict the next tree in the
pass that verifies this one (Chen et al. 2405.18628). The tree depends on how many tokens were predicted.
Candidates are chosen: exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, rows: int, depth: int) -> Parts:
    from ....drafters.heads.in_target import InTargetTree
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .ppd_drafter import prompt_trees

    heads = kit.head("ppd")
    trees = prompt_trees(tuple(map(tuple, heads.accuracy)), min(depth, len(heads)), rows, heads.chains)
    return Parts(InTargetTree(heads, trees.__getitem__), Fixed(depth, 10, rows), TokenRejection())


METHOD = Method(
    key="ppd",
    title="PPD",
    paper="Chen et al. 2024, arXiv 2405.18628",
    summary="Learned prompt tokens ride along with every candidate, so the pass that checks one tree of guesses grows the next.",
    knobs=(
        Knob("rows", 5, 2, 64, "candidates and prompt tokens in a pass, together, without the root"),
        Knob("depth", 2, 1, 6, "prompt tokens after a candidate, as far as they were trained"),
    ),
    needs=frozenset({"head:ppd", "entry", "tree"}),
    look="How a pass is shared: candidates that may be right, and prompt tokens after those that are likely to be the last.",
    wins="Where memory is scarce and verification is cheap: a few thousand numbers are all that is trained.",
    loses="On a processor of two cores: most of a pass is prompt tokens after candidates that were refused.",
    differs="The tree for a number of rows is that of the best Markov chain, found by iteration; the authors build theirs and prune "
    "them. They use typical acceptance above temperature 0; here verification is exact.",
    compared="formula",
    published={"depth": 3},
    aliases=("PPD", "parallel prompt decoding", "hardware-aware dynamic sparse tree"),
    trains=(
        Trained(
            "ppd",
            "Prompt tokens after every candidate, which draft the next tree in the pass that verifies this one.",
            "specviz.models.in_target",
        ),
    ),
    claims=(
        Claim(
            "Prompt tokens on a tree predict more than look-ahead tokens on a chain.",
            "pass_sampling",
            "accepted_length",
            figure="up to 2.49 times plain decoding",
            place="abstract of 2405.18628",
            tokens=40,
            knobs={"depth": 3},
        ),
    ),
    build=build,
)
