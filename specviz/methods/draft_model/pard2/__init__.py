"""PARD-2: PARD's draft model also reads the target's hidden states, one position behind its tokens (2605.08632).
Each token is sampled from its own logits, independently of the others, so token rejection is exact at every
temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, states: bool, gamma: int) -> Parts:
    from ....drafters.model.masked import MaskedDraft
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .pard2_drafter import InformedMaskedDraft

    drafter = (
        InformedMaskedDraft(kit.head("pard"), kit.head("pard2")) if states else MaskedDraft(kit.head("pard"))
    )
    return Parts(drafter, Fixed(gamma), TokenRejection())


METHOD = Method(
    key="pard2",
    title="PARD-2",
    paper="PARD-2 2026, arXiv 2605.08632",
    summary="PARD's one-pass draft model also reads what the target thought: its states, one place before each token.",
    knobs=(
        Knob(
            "states",
            True,
            help="read the target's hidden states; off, the draft model drafts from the text alone",
        ),
        Knob("gamma", 2, 1, 16, "tokens drafted a round, all from one pass"),
    ),
    needs=frozenset({"head:pard", "head:pard2", "tap:layer"}),
    look="Acceptance with and without the target's states: the knob switches them off while the weights stay.",
    wins="Targets far larger than the draft: their states know more of the text than the draft's own layers do.",
    loses="Deep in a block: the masks have no states, so what the target thought reaches them through the text only. Trained for 60 "
    "steps (0.07 million tokens) the projection harmed: 1.34 tokens a pass where PARD has 1.57. So no weights come with it.",
    differs="Input, position and dual mode are those of the public code. Ours adds a trained projection to PARD's frozen weights, where "
    "the authors train both; the weight of a depth is the mean of the target's confidence so far over the batch, theirs a "
    "product for each token. Published files are not read.",
    compared="code",
    relative="pard",
    aliases=("pard2", "PARD2"),
    trains=(
        Trained(
            "pard2",
            "A projection of the target's states into PARD's draft model.",
            f"{__name__}.pard2_network",
            after="pard",
        ),
    ),
    claims=(
        Claim(
            "A parallel draft model that reads the target's states keeps more than one that does not.",
            "pard",
            "accepted_length",
            tokens=40,
        ),
    ),
    build=build,
)
