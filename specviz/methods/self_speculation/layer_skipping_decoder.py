"""Unified Layer Skipping as in its paper: the prompt runs through all layers, every further token through a
fixed set of layers at equal distances, without verification (Liu et al. 2404.06954, who train the model for
it)."""

from __future__ import annotations

from ...core import Drafter, Knob, Method, Parts
from ...core.claim import Claim


def build(kit, speedup: int) -> Parts:
    from ...drafters.layers.layer_skipping import evenly_spaced_layers
    from ...loops.layer_skipping import LayerSkippingLoop
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    kept = evenly_spaced_layers(kit.target.layers, speedup)
    skipped = frozenset(
        s for layer in range(kit.target.layers) if layer not in kept for s in (2 * layer, 2 * layer + 1)
    )
    return Parts(
        Drafter(),
        Fixed(gamma=0),
        TokenRejection(),
        LayerSkippingLoop(lambda written: skipped if written else frozenset()),
    )


METHOD = Method(
    key="layer_skipping_decoder",
    title="Unified Layer Skipping (as decoder)",
    paper="Liu et al. 2024, arXiv 2404.06954",
    summary="Reads the prompt with all of its layers and writes with every second, third or fifth of them, unchecked.",
    exactness="approximate",
    knobs=(
        Knob(
            "speedup",
            2,
            1,
            10,
            "requested speed-up: one layer in so many is kept, and always the first and the last; 1 is exact",
        ),
    ),
    needs=frozenset({"skip"}),
    look="The comb of layers that write, the same for every token; compare the text with plain decoding's.",
    wins="Models trained for it: every token costs the same known share of a pass.",
    loses="An untrained model writes nonsense with half of its layers: the same comb is useful as a drafter, where it is checked.",
    differs="As published, on a model that was not trained for it.",
    compared="code",
    aliases=("ULS",),
    claims=(
        Claim(
            "A fixed, even choice of layers halves the layers that are run.",
            "autoregressive",
            "layers_read",
            figure="better than dynamic skipping at an equal speed-up",
            place="abstract of 2404.06954",
            tokens=40,
        ),
    ),
    build=build,
)
