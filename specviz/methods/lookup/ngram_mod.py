"""llama.cpp's ngram-mod: one hash table from n-grams to the next token, shared by all answers; a draft
follows it token by token."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(kit, key: int, gamma: int, least: int, caution: float) -> Parts:
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...drafters.lookup.ngram_map import NgramPool
    from ...indexes.earlier_answers import memory_of
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        with_cost_gate(NgramPool(memory_of(kit), key, least), caution), Fixed(gamma), TokenRejection()
    )


METHOD = Method(
    key="ngram_mod",
    title="N-gram pool (llama.cpp)",
    paper="llama.cpp, pull request 19164",
    summary="Remembers in a small table which token came last after each few tokens, in this text and in earlier answers.",
    knobs=(
        Knob("key", 6, 1, 32, "tokens of a key (llama.cpp's n-match, 24)"),
        Knob(
            "gamma",
            64,
            1,
            64,
            "most tokens drafted a round (its n-max); the gate lets through as many as pay",
        ),
        Knob("least", 1, 1, 64, "shorter drafts are dropped (its n-min, 48)"),
        CAUTION,
    ),
    look="The pool fills up with every answer, and a repeated question is drafted from what the first one left.",
    wins="Going over the same block of text or code again and again: memory and time stay the same however long it gets.",
    loses="The table keeps the latest token of a key alone, and short keys lead astray.",
    differs="The table has 65,536 entries instead of four million, and the cost gate is ours.",
    published={"key": 24, "least": 48, "caution": 0.0},
    aliases=("ngram-mod", "ngram-cache", "llama.cpp"),
    claims=(
        Claim(
            "A pool of n-grams drafts long copies.",
            "autoregressive",
            "accepted_length",
            tasks=("edit", "quote", "cite"),
            tokens=40,
        ),
    ),
    build=build,
)
