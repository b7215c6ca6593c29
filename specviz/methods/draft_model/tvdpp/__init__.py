"""Direct alignment with TVD++: a draft model trained by policy gradient with a reward for each token that
the target finds more probable than the draft does (Goel et al. 2403.00858). Decoding is plain speculative
decoding; only the weights differ."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.model.overlap import OverlapChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(OverlapChain(kit.open("draft:tvdpp")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="tvdpp",
    title="TVD++ (direct alignment)",
    paper="Goel et al. 2024, arXiv 2403.00858",
    summary="Plain speculative decoding with a draft taught by rewards for saying what the target finds likelier than"
    " it does itself.",
    knobs=(Knob("gamma", 4, 1, 16, "tokens drafted a round"),),
    needs=frozenset({"draft:tvdpp"}),
    look="How much of both distributions is common at each place: total variation is what is missing to one.",
    wins="At temperature 1, where total variation is the chance of a refusal itself.",
    loses="Where the draft gives the right token no chance at all: what is never drawn is never rewarded.",
    differs="The estimator is rebuilt from the paper's abstract and notes on it: one token sampled per position, rewards normalised over "
    "512 positions. A small cross-entropy term is added, and the target's distribution is stored as its top tokens.",
    aliases=("direct alignment", "TVD", "total variation distance"),
    trains=(
        Trained(
            "tvdpp",
            "The draft model, trained on the total variation distance with policy gradients.",
            after="draft",
        ),
    ),
    claims=(
        Claim(
            "A draft aligned with the target by TVD++ drafts well.",
            "autoregressive",
            "accepted_length",
            figure="up to 2.3 tokens a pass",
            place="abstract of 2403.00858",
            tokens=40,
        ),
    ),
    build=build,
)
