"""OmniDraft: a draft model with another tokenizer is distilled online from the target, including the
spelling of target tokens in draft tokens; several draft tokens that form one target token are proposed as
that token (Ramakrishnan et al. 2507.02659)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(
    kit, gamma: int, ahead: int, every: int, rate: float, weight: float, adaptive: bool, threshold: float
) -> Parts:
    from ...drafters.vocabulary.omni import OmniChain, untrained_head
    from ...policies import Fixed, PredictedAcceptance
    from ...verifiers import TokenRejection

    model = kit.open("other_draft")
    head = untrained_head(model.hidden, model.vocab) if adaptive else None
    drafter = OmniChain(model, kit.bridge("other_draft"), ahead, every, rate, weight, head)
    return Parts(
        drafter,
        Fixed(gamma) if head is None else PredictedAcceptance(head, threshold, 1, gamma),
        TokenRejection(),
    )


METHOD = Method(
    key="omnidraft",
    title="OmniDraft",
    paper="Ramakrishnan et al. 2025, arXiv 2507.02659",
    summary="One draft for any target: it gathers how it spells the target's tokens, proposes them whole, and learns while it serves.",
    knobs=(
        Knob(
            "gamma",
            2,
            1,
            16,
            "tokens drafted a round, counted as the target's; the most, with an adaptive length",
        ),
        Knob(
            "ahead",
            4,
            0,
            16,
            "number of most probable prefixes of known spellings whose next token is scored; 0 "
            "proposes nothing but tokens that both have",
        ),
        Knob("every", 16, 1, 256, "written tokens for one step of learning"),
        Knob("rate", 3e-4, 1e-5, 1e-2, "how far a step goes; too far, and what the draft knew is lost"),
        Knob(
            "weight",
            0.2,
            0.0,
            1.0,
            "of a token that the draft spells in several, beside one that both have, in what is learned",
        ),
        Knob(
            "adaptive",
            False,
            help="a head on the draft's states learns which tokens pass, and ends the draft when a refusal is likely",
        ),
        Knob(
            "threshold",
            0.5,
            0.05,
            0.95,
            "with an adaptive length: the predicted chance of any refusal at which the draft ends",
        ),
    ),
    needs=frozenset({"other_draft"}),
    look="The cache: how many of the target's own words it knows when they come, and how acceptance rises over the rounds.",
    wins="Long answers of one kind with a draft of another family, where the same words of the target come again and again.",
    loses="On short answers: the cache is empty at first, and the steps of learning cost time at once.",
    differs="Cache and learned weights last for one run; all weights are trained, where the paper may use low-rank ones. Training uses "
    "the written tokens, not the whole draft. After a few likely prefixes the second token's distribution is computed before the "
    "first is sampled, so the paper's corrected masses form a distribution. The acceptance head starts untrained, with "
    "SpecDec++'s weights. Threshold and rate are ours.",
    compared="notes",
    published={"weight": 0.2},
    aliases=("n-gram cache", "cross-vocabulary", "one drafter for all"),
    claims=(
        Claim(
            "Merged n-grams and learning keep more than matching text.",
            "slem",
            "kept_share",
            figure="up to 1.5 to 2 times plain decoding",
            place="abstract of 2507.02659",
            knobs={"gamma": 2},
            baseline_knobs={"gamma": 2},
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
