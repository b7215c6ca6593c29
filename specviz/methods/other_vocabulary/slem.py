"""SLEM: a draft model with another tokenizer generates text, which is re-encoded in the target's tokens and
accepted as far as it equals the target's own choice (Timor et al. 2502.05202). At temperatures above 0 the
target's own sample decides."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ...drafters.vocabulary.chains import StringMatch
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        StringMatch(kit.open("other_draft"), kit.bridge("other_draft")), Fixed(gamma), TokenRejection()
    )


METHOD = Method(
    key="slem",
    title="String match across vocabularies (SLEM)",
    paper="Timor et al. 2025, arXiv 2502.05202",
    summary="The draft has another vocabulary than the target: its text is re-tokenized with the target's tokenizer and compared.",
    knobs=(Knob("gamma", 4, 1, 16, "tokens drafted a round, in either vocabulary"),),
    needs=frozenset({"other_draft"}),
    look="The alignment: where one token of the draft is two of the target's, or two are one.",
    wins="At temperature 0 with any draft model at hand, whatever its tokenizer.",
    loses="Above temperature 0 a drafted token passes only as often as the target would draw it.",
    differs="As in transformers, but the text is re-tokenized and compared from the start to align it.",
    compared="code",
    aliases=("universal assisted", "UAG"),
    claims=(
        Claim(
            "A draft model with another tokenizer drafts for the target.",
            "autoregressive",
            "accepted_length",
            figure="up to 2.8 times plain decoding",
            place="abstract of 2502.05202",
            tokens=40,
        ),
    ),
    build=build,
)
