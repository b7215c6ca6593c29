"""SAM-Decoding with its static part: the longest match among the context, past answers and a datastore is
used (Hu et al. 2411.10666). The paper's static automaton is a suffix array here, which finds the same
matches."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(kit, gamma: int, least: int, bias: int, stretch: float, caution: float) -> Parts:
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...drafters.lookup.datastore import LongerMatch
    from ...indexes.earlier_answers import memory_of
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = with_cost_gate(
        LongerMatch(kit.open_store("text"), least, stretch, bias, memory_of(kit)), caution
    )
    return Parts(drafter, Fixed(gamma, 8, gamma), TokenRejection())


METHOD = Method(
    key="sam_store",
    title="SAM-Decoding with a store",
    paper="Hu et al. 2024, arXiv 2411.10666",
    summary="Copies from this text, from earlier answers or from a library of others, whichever repeats the last words for longest.",
    knobs=(
        Knob("gamma", 40, 1, 64, "most tokens drafted a round"),
        Knob(
            "least",
            2,
            1,
            16,
            "shortest match in the text that is copied from (the paper's 5); the gate learns which to trust",
        ),
        Knob(
            "bias",
            2,
            0,
            16,
            "tokens by which a match elsewhere must be longer than one in this text (the paper's 5)",
        ),
        Knob("stretch", 4.0, 0.5, 16.0, "tokens copied for each token of a match in the text"),
        CAUTION,
    ),
    needs=frozenset({"store:text"}),
    look="Arcs into the text for its own repetitions, nodes from the store for common phrases.",
    wins="Answers full of set phrases, and edits: each is found where it is.",
    loses="Text that is new to both: plain decoding then.",
    differs="The datastore is a suffix array instead of an automaton, with the same matches. Short matches give a tree; those of at "
    "least half its depth give a chain. The cost gate is ours.",
    compared="code",
    published={"least": 5, "bias": 5, "caution": 0.0},
    aliases=("SAM", "SAMD"),
    claims=(
        Claim(
            "A library added to the automaton drafts more than the running text.",
            "sam_decoding",
            "accepted_length",
            figure="2.27 times plain decoding with Token Recycling",
            place="abstract of 2411.10666",
            tasks=("chat", "code", "prose"),
            tokens=40,
        ),
    ),
    build=build,
)
