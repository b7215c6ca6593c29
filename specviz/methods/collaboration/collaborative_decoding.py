"""CoDe (collaborative decoding): a large model paints the coarse scales of a picture and a small one
refines it (Chen et al. 2411.17787)."""

from __future__ import annotations

from ...core import Drafter, Knob, Method, Parts
from ...core.claim import Claim


def build(kit, large_scales: int) -> Parts:
    from ...loops.next_scale import NextScale
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        Drafter(),
        Fixed(gamma=0),
        TokenRejection(),
        NextScale(large_scales),
        {"refiner": kit.open("draft", required=True)},
    )


METHOD = Method(
    key="collaborative_decoding",
    title="CoDe",
    paper="Chen et al. 2024, arXiv 2411.17787",
    summary="The large model paints a picture's first, coarse scales; a small model paints the fine ones, which are most of the patches.",
    exactness="approximate",
    knobs=(
        Knob(
            "large_scales",
            3,
            0,
            16,
            "first scales that the large model paints (N); all of them: the large model alone, "
            "0: the small one alone",
        ),
    ),
    needs=frozenset({"draft", "scales"}),
    look="The picture after each scale: the first ones are the large model's, the framed ones the small model's.",
    wins="The fine scales hold most patches and little choice: a small model paints them nearly as well.",
    loses="With few large scales the shape itself is the small model's, and more pictures are not what was asked for.",
    differs="Both models were trained once, on all scales, so that any N can be tried; the paper fine-tunes each for its scales. Patches "
    "of pixels with a codebook per scale take the place of a VQ-VAE.",
    compared="notes",
    published={"large_scales": 8},
    aliases=("collaborative decoding", "next-scale prediction", "VAR"),
    claims=(
        Claim(
            "A small model paints the last scales: fewer parameters are read for a picture.",
            "autoregressive",
            "parameters_read",
            figure="1.7 times faster, memory halved",
            place="abstract of 2411.17787",
            target="specviz-scales",
            temperature=1.0,
            tokens=128,
        ),
    ),
    build=build,
)
