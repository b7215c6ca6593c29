"""MagicDec's self-speculation: the target drafts with a KV cache of the first and the latest tokens only
(Chen et al. 2408.11049, with StreamingLLM's window)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, window: int, sinks: int) -> Parts:
    from ...drafters.layers.own_cache import OwnCache
    from ...policies import Fixed
    from ...targets.cache_selection import SinksAndWindow
    from ...verifiers import TokenRejection

    return Parts(
        OwnCache(kit.target.partial_cache(SinksAndWindow(sinks, window))), Fixed(gamma), TokenRejection()
    )


METHOD = Method(
    key="magicdec",
    title="MagicDec (windowed cache)",
    paper="Chen et al. 2024, arXiv 2408.11049",
    summary="Drafts with the whole model but a short memory: the first few tokens and the latest ones.",
    knobs=(
        Knob("gamma", 3, 1, 12, "tokens drafted a round"),
        Knob("window", 32, 1, 4096, "latest tokens that are seen (the paper's 512 with long prompts)"),
        Knob("sinks", 4, 0, 64, "first tokens that are seen, too: attention rests on them"),
    ),
    needs=frozenset({"partial_cache"}),
    look="How much of the text the draft remembers, and that it is right nearly always even so.",
    wins="Prompts of many thousand tokens and many of them at once, where reading keys and values is what a pass costs.",
    loses="Here: at a few hundred tokens the weights cost all, and a drafted token costs as much as one of the target's own.",
    differs="The paper's gain comes from large batches at tens of thousands of tokens; this is its draft for one request, in full "
    "precision.",
    published={"window": 512},
    aliases=("StreamingLLM", "sparse KV", "self-speculation"),
    claims=(
        Claim(
            "Drafting with a part of the cache reads fewer keys and values than plain decoding.",
            "autoregressive",
            "cache_read",
            figure="up to 2.51 times plain decoding, batches of 32 to 256",
            place="abstract of 2408.11049, Llama3.1-8B",
            tokens=40,
        ),
    ),
    build=build,
)
