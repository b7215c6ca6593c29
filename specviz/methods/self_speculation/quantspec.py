"""QuantSpec: the target drafts with a 4-bit quantised KV cache (Tiwari et al. 2502.10424)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, bits: int, group: int, window: int) -> Parts:
    from ...drafters.layers.own_cache import OwnCache
    from ...policies import Fixed
    from ...targets.cache_selection import RoundedCache
    from ...verifiers import TokenRejection

    return Parts(
        OwnCache(kit.target.partial_cache(RoundedCache(bits, group, window)), bits),
        Fixed(gamma),
        TokenRejection(),
    )


METHOD = Method(
    key="quantspec",
    title="QuantSpec (rounded cache)",
    paper="Tiwari et al. 2025, arXiv 2502.10424",
    summary="Drafts with the whole model over a rough copy of its memory: every older key and value rounded to a few bits.",
    knobs=(
        Knob("gamma", 3, 1, 12, "tokens drafted a round"),
        Knob(
            "bits", 4, 1, 8, "of a rounded number (the paper's 4; the check's 8 are in full precision here)"
        ),
        Knob("group", 16, 1, 128, "cached tokens rounded together (the paper's 128)"),
        Knob("window", 16, 1, 256, "latest cached tokens that are not rounded"),
    ),
    needs=frozenset({"partial_cache"}),
    look="At four bits hardly a token is refused; at two and one the rough memory begins to show.",
    wins="Long texts on hardware with kernels for four bits: a quarter of the memory is read for each drafted token.",
    loses="Here: rounding is shown in full-width numbers, so nothing is read faster; this shows how right the draft is.",
    differs="The paper reads the upper four bits of the cache to draft and all eight to verify, with 4-bit weights for drafting. Here "
    "weights and verification have full precision.",
    published={"group": 128, "window": 128},
    aliases=("KV int4", "quantized KV"),
    claims=(
        Claim(
            "Drafting with a four-bit cache reads fewer keys and values than plain decoding.",
            "autoregressive",
            "cache_read",
            figure="up to about 2.5 times plain decoding",
            place="abstract of 2502.10424",
            tokens=40,
        ),
        Claim(
            "A draft over the whole cache in four bits is right more often than one over a part of it.",
            "magicdec",
            "kept_share",
            figure="more than 90 % accepted",
            place="abstract of 2502.10424",
            knobs={"gamma": 3},
            baseline_knobs={"gamma": 3},
            tasks=("edit", "quote", "cite"),
            tokens=40,
        ),
    ),
    build=build,
)
