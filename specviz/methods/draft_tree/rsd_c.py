"""Recursive speculative decoding with constant branching: each node has b children sampled without
replacement, verified recursively, each against the residual of its earlier siblings (RSD-C, Jeon et al.
2402.14160)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, branches: int, depth: int) -> Parts:
    from ...drafters.model.chain import DraftShape
    from ...policies import Fixed
    from ...trees import full_tree
    from ...verifiers import TokenRejection

    shape = full_tree((branches,) * depth)
    return Parts(DraftShape(kit.open("draft"), shape), Fixed(depth, branches, len(shape)), TokenRejection())


METHOD = Method(
    key="rsd_c",
    title="RSD-C (constant branching)",
    paper="Jeon et al. 2024, arXiv 2402.14160",
    summary="A full tree: every drafted token is followed by the same number of different alternatives.",
    knobs=(
        Knob("branches", 2, 1, 4, "different children of each node"),
        Knob("depth", 2, 1, 4, "levels; the number of nodes grows exponentially with it"),
    ),
    needs=frozenset({"draft", "tree"}),
    look="A refusal at the first child hardly ever ends the round: its sibling is tested against what is left of the distribution.",
    wins="With few levels, on hardware with compute to spare.",
    loses="Half of all nodes are leaves far from the root, where acceptance is unlikely; RSD-S spends them better.",
    differs="As published; the paper's trees are larger.",
    compared="formula",
    claims=(
        Claim(
            "Siblings drawn without replacement keep more than independent ones.",
            "draft_tree",
            "accepted_length",
            figure="better at equal draft lengths",
            place="abstract of 2402.14160",
            temperature=1.0,
            knobs={"branches": 3, "depth": 2},
            baseline_knobs={"children": "independent", "width": 3, "depth": 2, "nodes": 12},
            tokens=40,
        ),
    ),
    build=build,
)
