"""The confidence threshold of transformers' assisted generation: stop drafting after a token with low draft
probability (related to DISCO, Mamou et al. 2405.04304). transformers can also adapt the threshold to past
acceptance."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, most: int, threshold: float, learn: bool) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...policies import Confidence
    from ...verifiers import TokenRejection

    return Parts(DraftChain(kit.open("draft")), Confidence(most, threshold, learn), TokenRejection())


METHOD = Method(
    key="confidence_stop",
    title="Confidence threshold",
    paper="Mamou et al. 2024, arXiv 2405.04304; transformers, assisted generation",
    summary="Drafts until a token looks doubtful to the draft itself.",
    knobs=(
        Knob(
            "threshold",
            0.3,
            0.0,
            1.0,
            "probability below which a token ends the draft; at first, when it is learned",
        ),
        Knob("learn", False, help="fit the threshold to the tokens accepted and refused so far"),
        Knob("most", 10, 1, 40, "longest draft"),
    ),
    needs=frozenset({"draft"}),
    look="The last token of each draft is the one the small model doubted; watch how often it is the one refused.",
    wins="When the draft knows what it does not know.",
    loses="With a draft that is sure and wrong; and with a threshold that is fitted at temperature 1: its drafts are too long there.",
    differs="As in transformers, but a fitted threshold uses the last 256 tokens instead of all. DISCO trains a small network on the "
    "draft's probabilities, its entropy and the position instead.",
    compared="code",
    published={"threshold": 0.4, "learn": True, "most": 20},
    aliases=("assistant_confidence_threshold", "draft-p-min"),
    claims=(
        Claim(
            "Stopping at a low probability discards fewer draft tokens than a fixed length.",
            "speculative",
            "discarded",
            baseline_knobs={"gamma": 4},
        ),
    ),
    build=build,
)
