"""Judge decoding: a token rejected by rejection sampling is kept if a linear classifier on the target's
hidden states accepts it (Bachmann et al. 2501.19309). The output no longer follows the target's
distribution; the deviation of each such token is reported."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, least: float, gamma: int) -> Parts:
    from ....drafters.model.chain import DraftChain
    from ....policies import Fixed
    from ....verifiers import JudgeDecoding

    return Parts(DraftChain(kit.open("draft")), Fixed(gamma), JudgeDecoding(kit.head("judge"), least))


METHOD = Method(
    key="judge",
    title="Judge decoding",
    paper="Bachmann et al. 2025, arXiv 2501.19309",
    summary="Asks of a drafted token not whether the target would have written it, but whether it is good: a linear judge on "
    "the target's states decides.",
    exactness="approximate",
    knobs=(
        Knob(
            "least",
            0.5,
            0.0,
            1.0,
            "chance of being good above which a refused token stands; 1 is exact; the paper tells none",
        ),
        Knob("gamma", 5, 1, 32, "tokens drafted a round"),
    ),
    needs=frozenset({"draft", "head:judge", "tap:final"}),
    look="The judge's chance beside the target's probability: tokens that the target would not have written and that stand.",
    wins="Good draft models, whose drafts are mostly refused for wording: far longer drafts pass.",
    loses="The text is no longer the target's, and a judge that errs lets mistakes through for good.",
    differs="Rule and judge are the paper's, but its labels were written by hand for five hundred answers. Here a token is labelled good "
    "if the target, after reading it, gives the rest of its own answer about the same probability as before.",
    compared="formula",
    aliases=("judge decoding", "AutoJudge"),
    trains=(
        Trained(
            "judge",
            "A linear layer that predicts from a hidden state whether a rejected token is acceptable.",
            "specviz.models.judge",
            after="draft",
        ),
    ),
    claims=(
        Claim(
            "A trained judge keeps drafts that exact matching refuses.",
            "speculative",
            "accepted_length",
            figure="about 19.7 accepted tokens a round (8B for 405B)",
            place="full-paper notes on 2501.19309",
            knobs={"least": 0.15},
            baseline_knobs={"gamma": 5},
            tokens=40,
        ),
    ),
    build=build,
)
