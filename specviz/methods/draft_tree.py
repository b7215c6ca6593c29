"""A tree of drafts: several continuations share one pass of the target (SpecInfer, Miao et al. 2305.09781; recursive rejection
without replacement, Jeon et al. 2402.14160). The tree's shape is fixed beforehand: wide at the root, thin further down.
"""
from __future__ import annotations

from ..core import Knob, Method, Parts
from ..drafters import DraftShape
from ..policies import Fixed
from ..trees import sparse
from ..verifiers import TokenRejection


def build(kit, children: str, width: int, depth: int, nodes: int) -> Parts:
    shape = sparse(width, depth, nodes)
    return Parts(DraftShape(kit.open("draft"), shape, children == "sampled"), Fixed(depth, width, nodes), TokenRejection())


METHOD = Method(
    key="draft_tree",
    title="Draft tree",
    paper="Miao et al. 2023, arXiv 2305.09781; Jeon et al. 2024, arXiv 2402.14160",
    family="Draft tree",
    summary="The small model proposes several alternatives at each place; the target checks the whole tree of them in one pass.",
    knobs=(
        Knob("children", "top-k", choices=("top-k", "sampled"),
             help="the draft's most likely tokens, or tokens drawn without replacement (at temperature 0 the same)"),
        Knob("width", 3, 1, 8, "most alternatives at one place"),
        Knob("depth", 4, 1, 10, "most tokens ahead"),
        Knob("nodes", 12, 1, 64, "places in the tree; each is one more row for the target to score"),
    ),
    needs=frozenset({"draft", "tree"}),
    look="Second and third choices that save a round in which the first choice was refused.",
    wins="On hardware where scoring twenty rows costs little more than scoring one.",
    loses="On a CPU every further row costs time, and a narrow chain is often the better bargain.",
    build=build,
)
