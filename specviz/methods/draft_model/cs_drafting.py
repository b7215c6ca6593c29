"""CS Drafting: the draft model drafts the first tokens, accelerated by bigram counts; the later tokens come
from these counts alone (Chen et al. 2312.11462)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, first: int, tail: int, inner: int, ngram: int) -> Parts:
    from ...drafters.combined.cascade import Cascade
    from ...drafters.lookup.copying import NgramDraft
    from ...drafters.model.staged import StagedDrafter
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    sped_up = Parts(NgramDraft(ngram, min(2, ngram)), Fixed(inner), TokenRejection())
    drafter = Cascade(StagedDrafter(sped_up, kit.open("draft")), NgramDraft(ngram, min(2, ngram)), first)
    return Parts(drafter, Fixed(first + tail), TokenRejection())


METHOD = Method(
    key="cs_drafting",
    title="Cascade speculative drafting",
    paper="Chen et al. 2023, arXiv 2312.11462",
    summary="Lets the draft model write the first tokens and mere counts the rest, and hurries the draft model with the same counts.",
    knobs=(
        Knob("first", 4, 1, 16, "tokens from the draft model (the horizontal cascade)"),
        Knob("tail", 4, 0, 32, "most tokens from the counts after them"),
        Knob("inner", 4, 1, 16, "most tokens that the counts hand to the draft model (the vertical cascade)"),
        Knob("ngram", 5, 2, 8, "longest n-gram that is counted; shorter ones follow down to pairs"),
    ),
    needs=frozenset({"draft"}),
    look="One draft of two kinds: drawn tokens with their probability first, copied ones after them.",
    wins="Text that repeats itself now and then: a copy goes on where the draft model would have stopped, at no cost.",
    loses="On fresh text the tail is refused and makes the pass larger.",
    differs="The paper counts bigrams in Wikipedia for words that the text does not contain; here all counts come from the text. The "
    "paper's leniency is left out, so this is exact.",
    aliases=("MaG", "cascade", "CSD"),
    claims=(
        Claim(
            "N-grams draft for the draft model and for late places: fewer of its passes.",
            "speculative",
            "draft_passes",
            figure="up to 81 % faster than speculative decoding",
            place="abstract of 2312.11462",
            baseline_knobs={"gamma": 8},
        ),
    ),
    build=build,
)
