"""Online speculative decoding: the draft model is distilled from rejected tokens while both models serve
(Liu et al. 2310.07177)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, every: int, rate: float) -> Parts:
    from ...drafters.model.online import OnlineChain
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(OnlineChain(kit.open("draft"), every, rate), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="online",
    title="Online speculative decoding",
    paper="Liu et al. 2023, arXiv 2310.07177",
    summary="The draft model learns while it drafts: wherever the target refuses a token, it is shown what the target would have said.",
    knobs=(
        Knob("gamma", 4, 1, 16, "tokens drafted a round"),
        Knob("every", 4, 1, 64, "refused tokens for one step of learning"),
        Knob("rate", 3e-4, 1e-5, 1e-2, "how far a step goes; too far, and what the draft knew is lost"),
    ),
    needs=frozenset({"draft"}),
    look="Agreement over the rounds, beside what the draft would agree had it never learned; each dot is a step.",
    wins="On long answers of one kind: code, a table, a language the draft was not made for.",
    loses="On short answers: the steps cost time at once and pay later. Each run begins with the weights as they came.",
    differs="A training step follows a number of rejected tokens within one run, where the paper counts requests; the trained weights "
    "are dropped at the end of the run. Soft cross-entropy at rejected positions, AdamW and clipping are the authors'; our "
    "learning rate is larger, for a smaller model.",
    compared="code",
    published={"gamma": 5, "every": 8, "rate": 1e-4},
    aliases=("OSD", "online distillation", "learning draft"),
    claims=(
        Claim(
            "Learning from its rejections while it serves, a draft model keeps more.",
            "speculative",
            "kept_share",
            figure="acceptance up by 0.1 to 0.65",
            place="abstract of 2310.07177",
            tokens=192,
        ),
    ),
    build=build,
)
