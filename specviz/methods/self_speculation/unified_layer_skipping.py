"""Unified Layer Skipping as a drafter: a fixed set of layers at equal distances drafts, all layers verify
(Liu et al. 2404.06954 decode with those layers alone, unverified, after training for it)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, speedup: int, gamma: int) -> Parts:
    from ...drafters.layers.layer_skipping import KeptLayers, evenly_spaced_layers
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = KeptLayers(kit.target, evenly_spaced_layers(kit.target.layers, speedup))
    return Parts(drafter, Fixed(gamma), TokenRejection())


METHOD = Method(
    key="unified_layer_skipping",
    title="Unified Layer Skipping (as drafter)",
    paper="Liu et al. 2024, arXiv 2404.06954",
    summary="Drafts with every second, third or fifth of its own layers, always the same ones, and checks with all of them.",
    knobs=(
        Knob(
            "speedup",
            2,
            2,
            10,
            "requested speed-up of a draft step: one layer in so many is kept, and always the first and the last",
        ),
        Knob("gamma", 1, 1, 12, "tokens drafted a round"),
    ),
    needs=frozenset({"skip"}),
    look="The comb of layers that draft, the same for every token.",
    wins="Models trained for it: the cost of a draft step is known beforehand.",
    loses="An untrained model loses its thread when every second layer is missing: nearly all drafts are refused.",
    differs="The paper generates with these layers without verification; drafting with them is ours.",
    compared="code",
    aliases=("ULS",),
    claims=(
        Claim(
            "An even choice of layers drafts for the whole: the layers are read less often.",
            "autoregressive",
            "layers_read",
            why="half of the layers of a target that was not trained for it write another text; the paper fine-tunes",
            tokens=40,
        ),
    ),
    build=build,
)
