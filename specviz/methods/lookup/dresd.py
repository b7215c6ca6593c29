"""DReSD, dense retrieval: positions of the text are compared by the target's hidden state instead of their
tokens; the continuations of the most similar positions are the draft (Gritta et al. 2502.15572)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(kit, length: int, neighbours: int, least: float, dims: int, caution: float) -> Parts:
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...drafters.lookup.hidden_state_lookup import HiddenStateCopy
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = with_cost_gate(HiddenStateCopy(neighbours, least, dims), caution)
    return Parts(drafter, Fixed(length, neighbours, neighbours * length), TokenRejection())


METHOD = Method(
    key="dresd",
    title="DReSD",
    paper="Gritta et al. 2025, arXiv 2502.15572",
    summary="Finds earlier positions where the model was in a similar state of mind and wrote the same token, and copies what came next.",
    knobs=(
        Knob("length", 8, 1, 32, "most tokens to copy from one place (the paper's 10)"),
        Knob("neighbours", 2, 1, 10, "similar positions to copy from; the paper's 10 suit a GPU"),
        Knob("least", 0.3, -1.0, 1.0, "smallest likeness (cosine) of the two states"),
        Knob(
            "dims",
            64,
            1,
            4096,
            "main directions of the states that are compared, where there are more (the paper's 64)",
        ),
        CAUTION,
    ),
    needs=frozenset({"tap:final"}),
    look="Which earlier positions it finds similar: often the same meaning in other words, where a match of words is short.",
    wins="Repetitions in other words, and common words with many positions to copy from: the state knows which of them is meant.",
    loses="It drafts nearly every round, also on fresh text, where most of it is refused. The store is this text alone.",
    differs="The paper searches a library approximately. Here the datastore is the current text, its projection is computed from the "
    "prompt, and the cost gate is ours.",
    compared="code",
    published={"length": 10, "neighbours": 10, "caution": 0.0},
    aliases=("dense retrieval",),
    claims=(
        Claim(
            "Likeness of states finds more of the running text than exact matching.",
            "prompt_lookup",
            "accepted_length",
            figure="87 % higher acceptance than REST",
            place="abstract of 2502.15572",
            tokens=40,
        ),
    ),
    build=build,
)
