"""SpecDec++: an acceptance head on the draft model's hidden states predicts whether each drafted token will
be accepted; drafting stops when the predicted probability of a rejection exceeds a threshold (Huang et al.
2405.19715). The decision depends on kept tokens only, so the output stays exact."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, threshold: float, least: int, most: int) -> Parts:
    from ....drafters.model.chain import StateChain
    from ....policies import PredictedAcceptance
    from ....verifiers import TokenRejection

    head = kit.head("specdecpp")
    return Parts(
        StateChain(kit.open("draft"), head.hidden),
        PredictedAcceptance(head, threshold, least, most),
        TokenRejection(),
    )


METHOD = Method(
    key="specdecpp",
    title="SpecDec++",
    paper="Huang et al. 2024, arXiv 2405.19715",
    summary="A head on the draft model's states predicts which drafted tokens will pass, and ends the draft when a refusal is likely.",
    knobs=(
        Knob(
            "threshold",
            0.7,
            0.05,
            0.95,
            "stop when the predicted chance that something was refused is above this; the paper takes 0.3",
        ),
        Knob("least", 2, 1, 20, "shortest draft"),
        Knob("most", 20, 1, 40, "longest draft"),
    ),
    needs=frozenset({"draft", "head:specdecpp"}),
    look="The predicted chance under each drafted token, and what became of it; the draft ends where the risk crosses its limit.",
    wins="On text with easy and hard stretches, where the draft's own probabilities say too little about the target.",
    loses="With a draft model so cheap that a wasted step costs less than a round cut short.",
    differs="Head, bounds, mixed text and weighted loss are the authors'. By an oversight their blocks share one block's weights; ours "
    "have weights of their own, and files with shared ones load, too. Trained at temperature 1, as theirs.",
    compared="formula",
    published={"threshold": 0.3},
    aliases=("SpecDec_pp", "acceptance prediction head"),
    trains=(
        Trained(
            "specdecpp",
            "A classifier that predicts from the draft's hidden states whether its tokens will be accepted.",
            "specviz.models.draft_length",
            after="draft",
        ),
    ),
    claims=(
        Claim(
            "A trained stop discards fewer draft tokens than a fixed length.",
            "speculative",
            "discarded",
            figure="7.2 to 11.1 % faster than speculative decoding",
            place="abstract of 2405.19715",
            temperature=1.0,
        ),
    ),
    build=build,
)
