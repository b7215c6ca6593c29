"""SpecDiff: a masked diffusion model drafts a block in T steps (Christopher et al. 2408.05636; SpecDiff-2,
2511.00606). Left to right, each token's distribution given those before it is known, so token rejection is
exact for every T."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import note


def build(kit, gamma: int, steps: int, order: str) -> Parts:
    from ....drafters.heads.diffusion import DiffusionDraft
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(DiffusionDraft(kit.head("specdiff"), steps, order), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="specdiff",
    title="SpecDiff",
    paper="Christopher et al. 2024, arXiv 2408.05636; SpecDiff-2 2025, arXiv 2511.00606",
    summary="A small diffusion model drafts: it starts from a block of masks and replaces them by tokens in a few steps.",
    knobs=(
        Knob("gamma", 4, 1, 16, "tokens drafted a round, as far as the block was trained"),
        Knob(
            "steps",
            1,
            1,
            8,
            "passes of the diffusion model a round (T); more let later positions see what earlier ones became",
        ),
        Knob(
            "order",
            "left_to_right",
            choices=("left_to_right", "random"),
            help="which positions are filled in first; random, with several steps, accepts a token with its target probability only",
        ),
    ),
    needs=frozenset({"head:specdiff", "embed"}),
    look="Which step filled in each position. With one step all are guessed at once, as in DFlash; with a step for each it is an "
    "ordinary draft model that also sees the masks after it.",
    wins="Where a draft's price is its passes: a block has as many as you choose, not as many as it has tokens.",
    loses="Open text with one step: two good continuations get mixed. With many steps a small draft model is cheaper.",
    differs="No code of the first paper is public: masks, steps and noise are MDLM's, which it drafts with. Added here: an order from left "
    "to right that is fixed before drawing, so that several steps stay exact above temperature 0. The text is read causally and "
    "cached, a row predicts the token after it (SpecDiff-2), and the drafter reads the target's embedding, not its states.",
    notes={
        "diffusion": note(
            "diffusion",
            "The step of the diffusion model in which each position of the draft was filled in (SpecDiff).",
            order=("`left_to_right`, `random`, or `chains` of one pass", "left_to_right"),
            passes=("passes over the block", 2),
            steps=("of each drafted token, from 0", [0, 0, 1, 1]),
        )
    },
    aliases=("diffusion draft", "masked diffusion", "MDLM", "speculative diffusion decoding"),
    trains=(
        Trained(
            "specdiff",
            "A small masked diffusion model that fills in a block of masks in a few forward passes.",
            f"{__name__}.specdiff_network",
            one_pass=True,
        ),
    ),
    claims=(
        Claim(
            "A diffusion model drafts in one pass: fewer passes of the drafter than speculative decoding.",
            "speculative",
            "draft_passes",
            figure="up to 7.2 times plain, 1.75 times speculative decoding",
            place="arXiv 2408.05636v4",
            tokens=40,
        ),
    ),
    build=build,
)
