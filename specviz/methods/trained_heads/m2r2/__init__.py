"""M2R2: small adapters next to the target's first layers compute a second, faster residual stream, which
predicts tokens through the target's head at an early exit; verification continues from the first layers'
hidden states (Bhendawade et al. 2502.02040)."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import note


def build(kit, gamma: int, threshold: float) -> Parts:
    from ....policies import Confidence
    from ....verifiers import TokenRejection
    from .m2r2_drafter import M2R2Chain

    return Parts(M2R2Chain(kit.head("m2r2")), Confidence(gamma, threshold, learn=False), TokenRejection())


METHOD = Method(
    key="m2r2",
    title="M2R2",
    paper="Bhendawade et al. 2025, arXiv 2502.02040",
    summary="A fast residual beside the model's own lets the first layers draft through an early exit, and the remaining layers verify.",
    knobs=(
        Knob("gamma", 5, 1, 12, "most tokens drafted a round"),
        Knob(
            "threshold",
            0.5,
            0.0,
            1.0,
            "the draft ends after a token that is less likely than this to the early exit",
        ),
    ),
    needs=frozenset({"head:m2r2", "early", "head", "embed", "kv"}),
    look="How far the fast residual runs ahead of the slow one at each drafted token, and which layers were run once for both.",
    wins="Deep targets: the adapters are small, keep nothing between tokens, and the first layers' work is used again.",
    loses="In shallow targets the first layers are a large share of a pass, and below them too little is known yet.",
    differs="The paper's formulas were not available. Low-rank adapters that read the layers' own keys and values are the paper's. Ours: "
    "their form, the fast residual added to the slow one at the exit, and a router by confidence instead of its attention-based "
    "one (ARLA). Only self-speculation is implemented, not its other uses.",
    compared="notes",
    aliases=("multi-rate residuals", "accelerated residual", "early exit"),
    trains=(
        Trained(
            "m2r2",
            "Adapters that accelerate the residual, so that the target's first layers draft.",
            f"{__name__}.m2r2_network",
        ),
    ),
    notes={
        "residuals": note(
            "layers",
            "How far the fast residual differs from the target's own hidden state at the early exit (M2R2).",
            line=(
                "for each drafted token: norm of the change divided by the norm of the target's state",
                [0.9, 0.6, 1.2],
            ),
            exit=("layers below the exit", 2),
        ),
    },
    claims=(
        Claim(
            "Fast residuals of the first layers draft for the whole: the layers are read less often.",
            "autoregressive",
            "layers_read",
            figure="up to 2.8 times faster on MT-Bench",
            place="abstract of 2502.02040",
            tokens=40,
        ),
    ),
    build=build,
)
