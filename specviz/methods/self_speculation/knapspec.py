"""KnapSpec: the target drafts without some of its sublayers. Which sublayers and what draft length is
solved as a knapsack problem (Cha et al., ICML 2026, arXiv 2602.20217)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, share: float, least: float, gamma: int, sure: float, context: int, every: int) -> Parts:
    from ...drafters.layers.knapsack import KnapsackLayers
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(KnapsackLayers(share, least, sure, context, every, gamma), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="knapspec",
    title="KnapSpec",
    paper="Cha et al. 2026, arXiv 2602.20217",
    summary="Drafts without some of its own attention and feed-forward parts; a knapsack finds the set and the draft length that pay most.",
    knobs=(
        Knob("share", 0.5, 0.1, 0.9, "largest part of the whole cost that a draft may save"),
        Knob(
            "least",
            0.9,
            0.0,
            0.99,
            "cosine with the full target's states below which a set is dropped; the authors' 0.5 plans "
            "twice as long",
        ),
        Knob("gamma", 8, 1, 18, "most tokens drafted a round; the length is part of the plan"),
        Knob("sure", 0.7, 0.0, 1.0, "the draft ends after a token of which it was less sure than this"),
        Knob("context", 8, 1, 64, "last tokens on which a set is judged (the paper: those of five rounds)"),
        Knob(
            "every",
            64,
            1,
            256,
            "rounds from one plan to the next; a plan costs about as much as reading a few hundred tokens",
        ),
    ),
    needs=frozenset({"skip", "sublayers"}),
    look="The layer bar: attention and feed-forward parts are left out separately, and the set changes with the text.",
    wins="Large models with many layers, and long contexts, where attention costs more and is skipped more.",
    loses="Small models need all their layers: the best set agrees too seldom, and short answers do not pay for the plan.",
    differs="The first plan is made on the end of the prompt, and later ones on the last committed tokens; the authors collect five "
    "rounds. Costs are counted multiply-adds instead of profiled times, so the run depends on the seed alone. The planned length "
    "is used; the authors' code (kaist-flexml-lab/knapspec 802ef80) drafts up to a fixed one.",
    compared="code",
    published={"least": 0.5, "gamma": 18},
    aliases=("knapsack",),
    relative="swift",
    claims=(
        Claim(
            "Layers chosen as a knapsack read the target's layers less often than SWIFT's choice.",
            "swift",
            "layers_read",
            figure="up to 1.47 times plain decoding",
            place="abstract of 2602.20217",
            tokens=128,
        ),
    ),
    build=build,
)
