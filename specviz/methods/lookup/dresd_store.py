"""DReSD with its datastore: retrieval by the hidden states the target had at each token of a text corpus
(Gritta et al. 2502.15572). Exact search among the positions of the same token, or an approximate index for
a large datastore that has one."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(kit, length: int, neighbours: int, least: float, caution: float) -> Parts:
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...drafters.lookup.hidden_state_datastore import StoreStates
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = StoreStates(kit.open_store("dense"), kit.target, neighbours, least)
    return Parts(
        with_cost_gate(drafter, caution), Fixed(length, neighbours, neighbours * length), TokenRejection()
    )


METHOD = Method(
    key="dresd_store",
    title="DReSD with a store",
    paper="Gritta et al. 2025, arXiv 2502.15572",
    summary="Finds passages of a library that the model read in a similar state of mind, and copies what came next there.",
    knobs=(
        Knob("length", 8, 1, 32, "most tokens to copy from one place (the paper's 10)"),
        Knob("neighbours", 2, 1, 10, "similar positions to copy from; the paper's 10 suit a GPU"),
        Knob("least", 0.5, -1.0, 1.0, "smallest likeness (cosine) of the two states"),
        CAUTION,
    ),
    needs=frozenset({"store:dense", "tap:final", "embed", "head"}),
    look="Places of the library that are alike in meaning, not in words, and whether the search was exact or approximate.",
    wins="A library of the target's own earlier answers to similar questions: the paper gains most of its speed there.",
    loses="A library of other matters, and a target that was trained since: its states mean something else then.",
    differs="As published, on the project's own datastore, with exact search while it is small; the cost gate is ours.",
    compared="code",
    published={"length": 10, "neighbours": 10, "caution": 0.0},
    claims=(
        Claim(
            "Likeness of states finds more in a datastore than exact matching.",
            "rest",
            "accepted_length",
            figure="65 % longer accepted tokens than REST",
            place="abstract of 2502.15572",
            tasks=("chat", "code", "prose"),
            tokens=40,
            why="its store holds the states of 50,000 tokens, the datastore that REST searches 317,000",
        ),
    ),
    build=build,
)
