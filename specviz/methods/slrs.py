"""SLRS: a token of the draft is drawn, spelled in the target's tokens, and the first of them is judged under the probability that
the draft says anything that begins so (Timor et al. 2502.05202). Here with one draft token of outlook, where that sum is cheap.
"""
from __future__ import annotations

from ..core import Knob, Method, Parts
from ..drafters.bridge_chains import StringRejection
from ..policies import Fixed
from ..verifiers import TokenRejection


def build(kit, gamma: int) -> Parts:
    return Parts(StringRejection(kit.open("other_draft"), kit.bridge("other_draft")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="slrs",
    title="String rejection across vocabularies (SLRS)",
    paper="Timor et al. 2025, arXiv 2502.05202",
    family="Other vocabulary",
    summary="Every word of the draft counts, also those the target does not have: it is judged by how the target would spell it.",
    knobs=(Knob("gamma", 5, 1, 16, "tokens drafted a round"),),
    needs=frozenset({"other_draft"}),
    look="Tokens of the draft that become two of the target's: the first is judged by a ratio, the second must match.",
    wins="When the draft has many tokens that the target lacks, at temperature above 0.",
    loses="The rest of a spelling must match the target's own draw; a token that is several of the draft's is never proposed whole.",
    build=build,
)
