"""Staged speculation with two draft models: a tiny one drafts for the small one, which drafts for the
target (Spector and Re 2308.04623). The small model's tokens follow its distribution exactly, whatever the
tiny model drafts, so the output stays exact.
"""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, inner: int, drafts: str, width: int, nodes: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...drafters.model.staged import StagedDrafter
    from ...policies import Fixed
    from ...trees import sparse_tree
    from ...verifiers import TokenRejection

    parts = Parts(DraftChain(kit.open("small")), Fixed(inner), TokenRejection())
    if drafts == "chain":
        return Parts(StagedDrafter(parts, kit.open("middle")), Fixed(gamma), TokenRejection())
    drafter = StagedDrafter(parts, kit.open("middle"), sparse_tree(width, gamma, nodes))
    return Parts(drafter, Fixed(gamma, width, nodes), TokenRejection())


METHOD = Method(
    key="staged_models",
    title="Staged speculation, two draft models",
    paper="Spector and Re 2023, arXiv 2308.04623",
    summary="A speculation inside the speculation: a tiny model drafts for the draft model, which drafts for the target.",
    knobs=(
        Knob("gamma", 4, 1, 16, "tokens the draft model hands to the target a round"),
        Knob("inner", 3, 1, 16, "tokens the tiny model hands to the draft model"),
        Knob(
            "drafts",
            "chain",
            choices=("tree", "chain"),
            help="what the target is handed: a tree, as in the paper, or its first line alone",
        ),
        Knob("width", 3, 1, 8, "most alternatives at one place of the tree"),
        Knob("nodes", 10, 1, 64, "nodes of the tree; each is one more token for the target to score"),
    ),
    needs=frozenset({"middle", "small"}),
    look="How few passes the draft model needs for its tokens where the tiny one is right.",
    wins="Three models of very different sizes: the middle one must cost much more than the tiny one.",
    loses="When both drafts are tiny: a pass then costs what it takes to dispatch, whatever the size.",
    differs="The inner stage is a tiny network instead of the paper's trigram model. It drafts the tree's first path; passes of the "
    "draft model add the other nodes.",
    published={"drafts": "tree"},
    claims=(
        Claim(
            "A smaller draft model drafts for the draft model: fewer of its passes.",
            "speculative",
            "inner_passes",
            figure="3.16 times plain decoding",
            place="abstract of 2308.04623, GPT-2-L",
        ),
    ),
    build=build,
)
