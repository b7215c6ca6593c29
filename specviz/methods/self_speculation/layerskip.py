"""LayerSkip: the target's first layers and its head draft; verification runs only the remaining layers, on
the hidden states of the draft (Elhoushi et al. 2404.16710, who also train the model for early exits)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, share: float, gamma: int) -> Parts:
    from ...drafters.layers.layer_skipping import ExitChain
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(ExitChain(share), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="layerskip",
    title="LayerSkip early exit",
    paper="Elhoushi et al. 2024, arXiv 2404.16710",
    summary="The first layers of the model draft through an early exit, and the remaining layers verify.",
    knobs=(
        Knob("share", 0.5, 0.05, 0.95, "share of the layers that draft"),
        Knob("gamma", 2, 1, 12, "tokens drafted a round"),
    ),
    needs=frozenset({"early", "head"}),
    look="The bar of layers: those that draft are run once for both draft and check; nothing else is kept in memory.",
    wins="Models trained with early exits, where a third of the layers drafts well.",
    loses="A model trained without early exits predicts badly before its last layers: most drafts are rejected.",
    differs="As published, on a model that was not trained with early exits.",
    compared="code",
    published={"gamma": 6},
    aliases=("early exit", "self-speculative", "assistant_early_exit"),
    claims=(
        Claim(
            "The first layers draft for the whole, without a second model: the layers are read less often.",
            "autoregressive",
            "layers_read",
            figure="1.82 to 2.16 times plain decoding, on models trained with early exits",
            place="abstract of 2404.16710",
            why="the targets here were not trained with early exits, as the paper's are: their middle states predict no tokens",
            tokens=40,
        ),
    ),
    build=build,
)
