"""Staged speculation: the draft model is itself accelerated by a cheaper drafter, here a lookup in the
context (Spector and Re 2308.04623). Its tokens follow the draft model's distribution exactly, so the output
stays exact."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, inner: int, ngram: int, drafts: str, width: int, nodes: int) -> Parts:
    from ...drafters.lookup.prompt_lookup import PromptLookup
    from ...drafters.model.staged import StagedDrafter
    from ...policies import Fixed
    from ...trees import sparse_tree
    from ...verifiers import TokenRejection

    parts = Parts(PromptLookup(ngram, latest=True), Fixed(inner), TokenRejection())
    if drafts == "chain":
        return Parts(StagedDrafter(parts, kit.open("draft")), Fixed(gamma), TokenRejection())
    drafter = StagedDrafter(parts, kit.open("draft"), sparse_tree(width, gamma, nodes))
    return Parts(drafter, Fixed(gamma, width, nodes), TokenRejection())


METHOD = Method(
    key="staged",
    title="Staged speculation",
    paper="Spector and Re 2023, arXiv 2308.04623",
    summary="A speculation inside the speculation: a lookup drafts for the draft model, which drafts for the target.",
    knobs=(
        Knob("gamma", 5, 1, 16, "tokens the draft model hands to the target a round"),
        Knob("inner", 4, 1, 16, "tokens the lookup hands to the draft model"),
        Knob("ngram", 2, 1, 8, "longest piece of text the lookup matches"),
        Knob(
            "drafts",
            "chain",
            choices=("tree", "chain"),
            help="what the target is handed: a tree, as in the paper, or its first line alone",
        ),
        Knob("width", 3, 1, 8, "most alternatives at one place of the tree"),
        Knob("nodes", 10, 1, 64, "nodes of the tree; each is one more token for the target to score"),
    ),
    needs=frozenset({"draft"}),
    look="How few passes the draft model needs for its tokens when the text repeats itself.",
    wins="When the draft model is not much cheaper than the target.",
    loses="With a tiny draft model a further stage saves next to nothing.",
    differs="The inner stage is a lookup in the text instead of the paper's trigram model. It drafts the tree's first path; passes of "
    "the draft model add the other nodes.",
    published={"drafts": "tree"},
    aliases=("staged",),
    claims=(
        Claim(
            "N-grams draft for the draft model: fewer of its passes.",
            "speculative",
            "draft_passes",
            figure="3.16 times plain decoding",
            place="abstract of 2308.04623, GPT-2-L",
            knobs={"gamma": 5},
            baseline_knobs={"gamma": 5},
        ),
    ),
    build=build,
)
