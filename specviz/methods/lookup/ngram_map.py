"""llama.cpp's n-gram lookups: find another occurrence of a long key and copy a long continuation
(ngram-simple, ngram-map-k, ngram-map-k4v)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(kit, key: int, gamma: int, values: str, least: int, caution: float) -> Parts:
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...drafters.lookup.ngram_map import NgramMap
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        with_cost_gate(NgramMap(key, least, values == "most frequent"), caution),
        Fixed(gamma),
        TokenRejection(),
    )


METHOD = Method(
    key="ngram_map",
    title="N-gram map (llama.cpp)",
    paper="llama.cpp, docs/speculative.md",
    summary="Waits until a long piece of the text comes up again, and then copies the long piece that followed it.",
    knobs=(
        Knob("key", 6, 1, 24, "tokens that must repeat (llama.cpp's size-n, 12)"),
        Knob(
            "gamma",
            48,
            1,
            64,
            "most tokens copied a round (its size-m, 48); the gate lets through as many as pay",
        ),
        Knob(
            "values",
            "latest",
            choices=("latest", "most frequent"),
            help="which continuation: the latest one (simple, map-k), or of up to four the one clearly ahead (map-k4v)",
        ),
        Knob("least", 1, 1, 8, "times the key must have stood in the text before (its min-hits)"),
        CAUTION,
    ),
    look="No draft for a long time, and then dozens of tokens at once.",
    wins="Rewriting a long text or a program with few changes: a long key is hardly ever wrong.",
    loses="Short answers: keys of so many tokens do not come up again, and shorter repetitions are left lying.",
    differs="llama.cpp stores the number of accepted tokens per key; here the cost gate learns one rate for all keys. The most frequent "
    "value must be twice as frequent as the next one; this factor is ours.",
    published={"key": 12, "gamma": 48, "caution": 0.0},
    aliases=("ngram-simple", "ngram-map-k", "ngram-map-k4v", "llama.cpp"),
    claims=(
        Claim(
            "A map of n-grams drafts long copies.",
            "autoregressive",
            "accepted_length",
            tasks=("edit", "quote", "cite"),
            tokens=40,
        ),
    ),
    build=build,
)
