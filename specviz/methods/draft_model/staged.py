"""Staged speculation: the small model that drafts is itself sped up by an even cheaper drafter, here a lookup in the text so far
(Spector and Re 2308.04623). Its tokens follow the small model's law exactly, so the target's does too.
"""
from __future__ import annotations

from ...core import Knob, Method, Parts
from ...drafters.lookup.prompt_lookup import PromptLookup
from ...drafters.model.staged import Staged
from ...policies import Fixed
from ...verifiers import TokenRejection


def build(kit, gamma: int, inner: int, ngram: int) -> Parts:
    parts = Parts(PromptLookup(ngram, latest=True), Fixed(inner), TokenRejection())
    return Parts(Staged(parts, kit.open("draft")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="staged",
    title="Staged speculation",
    paper="Spector and Re 2023, arXiv 2308.04623",
    summary="A speculation inside the speculation: a lookup drafts for the draft model, which drafts for the target.",
    knobs=(
        Knob("gamma", 6, 1, 16, "tokens the draft model hands to the target a round"),
        Knob("inner", 4, 1, 16, "tokens the lookup hands to the draft model"),
        Knob("ngram", 2, 1, 8, "longest piece of text the lookup matches"),
    ),
    needs=frozenset({"draft"}),
    look="How few passes the draft model needs for its tokens when the text repeats itself.",
    wins="When the draft model is not much cheaper than the target.",
    loses="With a tiny draft model a further stage saves next to nothing.",
    differs="The paper drafts a tree and speeds its small model up with an n-gram model of text; here it is a chain, and "
            "a lookup in the text so far.",
    aliases=("staged",),
    build=build,
)
