"""BiLD, the big little decoder: the small model generates while it is confident and falls back to the large
one where it is not (fallback); the large model then processes these tokens and rolls back to the first one
it finds too improbable (rollback). Kim et al. 2302.07863."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core import Budget, Knob, Method, Parts, Policy
from ...core.claim import Claim

if TYPE_CHECKING:
    from ...core import State


class LargeFirst(Policy):
    """A policy that drafts up to ``max_gamma`` tokens with the small model, and none for the first token of
    an answer, which the large model generates."""

    def __init__(self, max_gamma: int):
        self.max_gamma = max_gamma

    def plan(self, state: State) -> Budget:
        return Budget(self.max_gamma if len(state.tokens) > state.start else 0)


def build(kit, fallback: float, rollback: float, most: int) -> Parts:
    from ...drafters.model.while_confident import ConfidentChain
    from ...verifiers.allowed_tokens import Rollback

    return Parts(ConfidentChain(kit.open("middle"), fallback), LargeFirst(most), Rollback(rollback))


METHOD = Method(
    key="bild",
    title="BiLD (big little decoder)",
    paper="Kim et al. 2023, arXiv 2302.07863",
    summary="The small model writes until it is unsure; then the large one writes a token. "
    "While it reads it takes back whatever it finds too unlikely.",
    exactness="approximate",
    knobs=(
        Knob(
            "fallback",
            0.6,
            0.0,
            1.0,
            "the small model hands over where its best token has less probability than this",
        ),
        Knob(
            "rollback",
            5.0,
            0.0,
            20.0,
            "the large one takes back a token with -log p above this; at temperature 0, 0 is exact",
        ),
        Knob("most", 10, 1, 40, "tokens after which the small model hands over in any case"),
    ),
    needs=frozenset({"middle"}),
    look="Two marks: fallback, where the small model gave up before writing, and rollback, where the large one took tokens back.",
    wins="When the small model knows when it is out of its depth: long stretches need one pass of the large one.",
    loses="What the small model is sure of and the large one tolerates stays, although it would have written something else.",
    differs="As the authors' code: only the first token that deviates too far is examined, so rollback 0 is not exact either. The paper "
    "fine-tunes encoder-decoder models to agree; any pair runs here.",
    compared="code",
    claims=(
        Claim(
            "The large model runs less than once for each token.",
            "autoregressive",
            "accepted_length",
            figure="up to 2.12 times faster than plain decoding",
            place="abstract of 2302.07863",
        ),
    ),
    build=build,
)
