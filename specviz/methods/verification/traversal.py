"""Traversal verification: a sampled tree is verified from its leaves up, so that a whole path can be kept
although one of its tokens alone would have been rejected (Weng et al. 2505.12398). On a chain it equals
block verification."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, width: int, depth: int, nodes: int) -> Parts:
    from ...drafters.model.chain import DraftShape
    from ...policies import Fixed
    from ...trees import sparse_tree
    from ...verifiers import Traversal

    return Parts(
        DraftShape(kit.open("draft"), sparse_tree(width, depth, nodes)),
        Fixed(depth, width, nodes),
        Traversal(),
    )


METHOD = Method(
    key="traversal",
    title="Traversal verification",
    paper="Weng et al. 2025, arXiv 2505.12398",
    summary="Judges a tree of drafts from the leaves up and keeps the longest path that passes as a whole.",
    knobs=(
        Knob("width", 3, 1, 8, "most alternatives at one place, drawn without replacement"),
        Knob("depth", 4, 1, 10, "most tokens ahead"),
        Knob("nodes", 6, 1, 64, "nodes of the tree; each is one more token for the target to score"),
    ),
    needs=frozenset({"draft", "tree"}),
    look="The order of the trials: leaves first, then their parents. A doubtful token survives when its continuation is good.",
    wins="At temperature above 0: a few percent more tokens a round than judging the same tree from the top.",
    loses="At temperature 0 it keeps exactly what token rejection keeps.",
    differs="As published; on a tree of chosen instead of sampled tokens it equals the ordinary walk.",
    compared="formula",
    claims=(
        Claim(
            "From the leaves up, more of a tree is kept than from the root down.",
            "draft_tree",
            "equal_drafts",
            figure="2.2 to 5.7 % longer accepted",
            place="a full-paper summary of 2505.12398",
            temperature=1.0,
            knobs={"width": 3, "depth": 4, "nodes": 12},
            baseline_knobs={"children": "sampled", "width": 3, "depth": 4, "nodes": 12},
            tokens=40,
        ),
    ),
    build=build,
)
