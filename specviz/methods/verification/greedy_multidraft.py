"""Greedy multi-draft sampling: all candidates but one are the draft's top tokens, the last is sampled from
the remaining distribution (Hu et al. 2502.18779). For such candidates the rule is optimal and has a closed
form."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, width: int, depth: int, nodes: int) -> Parts:
    from ...drafters.model.chain import DraftShape
    from ...policies import Fixed
    from ...trees import sparse_tree, top_and_one_children
    from ...verifiers import TokenRejection

    drafter = DraftShape(kit.open("draft"), sparse_tree(width, depth, nodes), children=top_and_one_children)
    return Parts(drafter, Fixed(depth, width, nodes), TokenRejection())


METHOD = Method(
    key="greedy_multidraft",
    title="Greedy multi-draft",
    paper="Hu et al. 2025, arXiv 2502.18779",
    summary="The draft's favourites plus one random candidate at each place: the favourites catch most, the random one the rest.",
    knobs=(
        Knob("width", 3, 1, 8, "candidates at one place, one of them drawn"),
        Knob("depth", 4, 1, 10, "most tokens ahead"),
        Knob("nodes", 6, 1, 64, "nodes of the tree; each is one more token for the target to score"),
    ),
    needs=frozenset({"draft", "tree"}),
    look="One drawn candidate a place, judged first, and its chosen siblings after it.",
    wins="At temperature above 0 with narrow trees: usually the most acceptance a row.",
    loses="At temperature 0 it is a plain tree of the most likely tokens.",
    differs="The rule is the paper's; it is applied at every node of a narrow tree.",
    compared="formula",
    claims=(
        Claim(
            "Chosen siblings and one sampled keep more than sampled ones.",
            "draft_tree",
            "accepted_length",
            temperature=1.0,
            knobs={"width": 3, "depth": 3, "nodes": 9},
            baseline_knobs={"children": "independent", "width": 3, "depth": 3, "nodes": 9},
            tokens=40,
        ),
    ),
    build=build,
)
