"""SkipDecode: the longer the answer, the fewer layers each token runs through; lower middle layers are
dropped first, so that every token finds keys and values in all layers it uses (Del Corro et al. 2307.02628,
who train the model for it)."""

from __future__ import annotations

from ...core import Drafter, Knob, Method, Parts
from ...core.claim import Claim


def build(kit, most: float, least: float, length: int, warm: int) -> Parts:
    from ...drafters.layers.layer_skipping import skip_schedule
    from ...loops.layer_skipping import LayerSkippingLoop
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    skipped = skip_schedule(kit.target.layers, most, min(least, most), length, warm)
    return Parts(Drafter(), Fixed(gamma=0), TokenRejection(), LayerSkippingLoop(skipped))


METHOD = Method(
    key="skipdecode",
    title="SkipDecode",
    paper="Del Corro et al. 2023, arXiv 2307.02628",
    summary="Writes the beginning of an answer with all of its layers and the rest with fewer and fewer of them, unchecked.",
    exactness="approximate",
    knobs=(
        Knob("most", 1.0, 0.1, 1.0, "share of the layers that write the first token"),
        Knob(
            "least",
            0.75,
            0.1,
            1.0,
            "share of them in the end; the paper's speed-ups of 2 to 5 need a trained model",
        ),
        Knob("length", 128, 1, 1024, "tokens over which their number falls, on a straight line"),
        Knob("warm", 1, 0, 4, "first layers that are always run"),
    ),
    needs=frozenset({"skip"}),
    look="The staircase of layers over positions: what is grey was never run, and never will be again.",
    wins="Models trained for it, and answers whose end follows from their beginning. The saving is known beforehand.",
    loses="An untrained model loses the thread when layers are missing; with both shares at 1 it is plain decoding.",
    differs="The linear schedule of skipped layers is the paper's, its end points are ours. The model was not trained for it.",
    claims=(
        Claim(
            "Later positions run fewer layers.",
            "autoregressive",
            "layers_read",
            figure="2 to 5 times faster",
            place="abstract of 2307.02628",
            tokens=40,
        ),
    ),
    build=build,
)
