"""FastDraft: a small draft model, pre-trained on text and then aligned on the target's answers, both within
a fixed budget (Zafrir et al. 2411.11055). Decoding is plain speculative decoding; only the weights
differ."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.model.overlap import OverlapChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(OverlapChain(kit.open("draft:fastdraft")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="fastdraft",
    title="FastDraft",
    paper="Zafrir et al. 2024, arXiv 2411.11055",
    summary="Plain speculative decoding with a draft made from nothing in a fixed budget: first plain text, then the "
    "target's answers.",
    knobs=(Knob("gamma", 4, 1, 16, "tokens drafted a round"),),
    needs=frozenset({"draft:fastdraft"}),
    look="How much of both distributions is common at each place, beside DistillSpec's and TVD++'s on the same "
    "prompt.",
    wins="Where no small model of the family exists and only the target's answers can be had, not its "
    "probabilities.",
    loses="Against a draft that saw the target's distributions, in the same time.",
    differs="Pre-training, then training on the target's answers, as published, with two million parameters and minutes instead of fifty "
    "million and a day. The paper's code and its continued pre-training on code are left out.",
    aliases=("openvino draft", "sequence-level distillation"),
    trains=(
        Trained(
            "fastdraft", "A draft model pretrained and then finetuned on the target's answers.", after="draft"
        ),
    ),
    claims=(
        Claim(
            "A small draft trained on the target's own texts drafts well.",
            "autoregressive",
            "accepted_length",
            figure="up to 2 times faster (summaries, instructions)",
            place="abstract of 2411.11055",
        ),
    ),
    build=build,
)
