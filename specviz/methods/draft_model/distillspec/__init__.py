"""DistillSpec: the draft model is distilled from the target's distributions, partly on its own generations,
with a divergence chosen for the task (Zhou et al. 2310.08461). Decoding is plain speculative decoding; only
the weights differ."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.model.overlap import OverlapChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(OverlapChain(kit.open("draft:distillspec")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="distillspec",
    title="DistillSpec",
    paper="Zhou et al. 2023, arXiv 2310.08461",
    summary="Plain speculative decoding with a draft distilled on text it wrote itself, where its own mistakes are "
    "corrected.",
    knobs=(Knob("gamma", 4, 1, 16, "tokens drafted a round"),),
    needs=frozenset({"draft:distillspec"}),
    look="How much of both distributions is common at each place: that is what the training raises.",
    wins="At temperature above 0, where the overlap of whole distributions counts and not only the top-1 token.",
    loses="On text unlike the prompts it was distilled on.",
    differs="The divergence and the share of on-policy text are settings of the recipe; the paper tunes both per task, here one pair "
    "serves all tasks. The target's distribution is stored as its top tokens and one outcome for the rest.",
    aliases=("distilled draft", "on-policy distillation", "GKD"),
    trains=(Trained("distillspec", "The draft model, distilled on its own samples.", after="draft"),),
    claims=(
        Claim(
            "Distilling from the target makes a draft model that keeps more than plain training (TVD++'s start).",
            "fastdraft",
            "accepted_length",
            figure="10 to 45 % faster than speculative decoding",
            place="abstract of 2310.08461",
            why="it saw 0.3 million tokens here, FastDraft's draft 0.8 million (docs/trained.md)",
        ),
    ),
    build=build,
)
