"""Kangaroo: the target's first layers and a small trained adapter draft through the target's head; the
draft ends after the first token of low confidence, and verification continues from the first layers' hidden
states (Liu et al. 2404.18911)."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int, threshold: float) -> Parts:
    from ....policies import Confidence
    from ....verifiers import TokenRejection
    from .kangaroo_drafter import ExitAdapter

    return Parts(
        ExitAdapter(kit.head("kangaroo")), Confidence(gamma, threshold, learn=False), TokenRejection()
    )


METHOD = Method(
    key="kangaroo",
    title="Kangaroo",
    paper="Liu et al. 2024, arXiv 2404.18911",
    summary="Leaves the target early twice: after its first layers to draft, and out of the draft once it is no longer sure.",
    knobs=(
        Knob("gamma", 6, 1, 12, "most tokens drafted a round; the paper takes 6"),
        Knob(
            "threshold",
            0.6,
            0.0,
            1.0,
            "the draft ends after a token that is less likely than this to the adapter",
        ),
    ),
    needs=frozenset({"head:kangaroo", "early", "head", "tap:layer"}),
    look="Short drafts where the text is open, long ones where it is not; the bar shows which layers were run once for both.",
    wins="Deep targets, whose first layers are a small share of the whole and are not run again by the check.",
    loses="At high temperature the adapter is seldom sure, so drafts are short.",
    differs="As published. Above temperature 0, which the authors do not cover, it samples and verifies by rejection sampling.",
    compared="code",
    aliases=("kangaroo", "early exit"),
    trains=(
        Trained(
            "kangaroo",
            "An adapter that lets the target's first layers draft.",
            f"{__name__}.kangaroo_network",
        ),
    ),
    claims=(
        Claim(
            "The first layers and an adapter draft: the layers are read less often.",
            "autoregressive",
            "layers_read",
            figure="up to 1.68 times plain decoding",
            place="abstract of 2404.18911",
            tokens=40,
        ),
        Claim(
            "An adapter drafts with two layers: the layers are read less often than with LayerSkip's exit.",
            "layerskip",
            "layers_read",
            figure="up to 1.68 times plain decoding",
            place="abstract of 2404.18911",
            tokens=40,
        ),
    ),
    build=build,
)
