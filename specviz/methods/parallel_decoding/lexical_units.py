"""Lexical unit decoding: tokens that the model predicts with high confidence without having read the ones
before them are committed together, unverified (Sun et al. 2405.15208). The paper trains the model for it;
here, without training, the last token is repeated in place of the blanks."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, blanks: int, sure: float) -> Parts:
    from ...drafters.parallel.blocks import LexicalUnits
    from ...policies import Fixed
    from ...verifiers.accept_all import AcceptAll

    return Parts(LexicalUnits(blanks, sure), Fixed(blanks), AcceptAll())


METHOD = Method(
    key="lexical_units",
    title="Lexical unit decoding",
    paper="Sun et al. 2024, arXiv 2405.15208",
    summary="Writes several tokens at once whenever the model is sure of them before it has read the ones in between.",
    exactness="approximate",
    knobs=(
        Knob("blanks", 3, 1, 12, "positions read ahead in every pass"),
        Knob(
            "sure",
            0.6,
            0.0,
            1.01,
            "least probability of a token of a unit, about 0.9 for a trained model; above 1 it is plain decoding",
        ),
    ),
    look="Units of several tokens, written unchecked, with the model's certainty of each: what it knows by heart.",
    wins="A model trained on blanks: the paper reports a third fewer passes. Names and fixed phrases go in one piece.",
    loses="An untrained model is hardly ever sure after a blank, and what it is sure of may be wrong: the text can suffer.",
    differs="The paper's numbers are not public. The model was not trained for it, so a repeated token replaces the blank that it would "
    "learn.",
    published={"blanks": 8, "sure": 0.9},
    aliases=("LUD",),
    claims=(
        Claim(
            "Tokens that the model is sure of are written together.",
            "autoregressive",
            "accepted_length",
            figure="33 % faster",
            place="abstract of 2405.15208",
            tokens=40,
        ),
    ),
    build=build,
)
