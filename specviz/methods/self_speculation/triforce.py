"""TriForce: a small model drafts for the target with a reduced KV cache, which in turn drafts for the
target with the full KV cache (Sun et al. 2404.11912)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, inner: int, budget: int, size: int, window: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...drafters.model.staged import StagedDrafter
    from ...policies import Fixed
    from ...targets.cache_selection import RelevantChunks
    from ...verifiers import TokenRejection

    below = Parts(DraftChain(kit.open("draft")), Fixed(inner), TokenRejection())
    view = kit.target.partial_cache(RelevantChunks(size, budget, window))
    return Parts(StagedDrafter(below, view), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="triforce",
    title="TriForce",
    paper="Sun et al. 2024, arXiv 2404.11912",
    summary="Three levels: a small model drafts for the target with little memory, which drafts for the target with all of it.",
    knobs=(
        Knob("gamma", 5, 1, 16, "tokens that the level in the middle hands to the target"),
        Knob("inner", 2, 1, 8, "tokens that the small model hands to the level in the middle"),
        Knob(
            "budget",
            64,
            1,
            4096,
            "tokens of the text that the level in the middle sees, in pieces (the paper's 4,096)",
        ),
        Knob("size", 8, 1, 64, "tokens of a piece"),
        Knob("window", 16, 1, 256, "latest tokens that it always sees"),
    ),
    needs=frozenset({"draft", "partial_cache"}),
    look="Two checks one inside the other: few tokens fall at the last one, for the level in the middle is nearly the target itself.",
    wins="Prompts of a hundred thousand tokens, whose keys and values take longer to read than the weights.",
    loses="Here: the level in the middle costs as much as the target, and the text is read twice.",
    differs="Chunks are selected in every round by the last token's key; the paper selects them by its query and less often. The paper's "
    "small model reads a window, too.",
    published={"budget": 4096},
    aliases=("hierarchical", "retrieval cache"),
    claims=(
        Claim(
            "A draft over a part of the cache keeps more than a small draft model.",
            "speculative",
            "accepted_length",
            figure="up to 2.31 times plain decoding on an A100",
            place="abstract of 2404.11912",
            baseline_knobs={"gamma": 5},
            tokens=40,
        ),
    ),
    build=build,
)
