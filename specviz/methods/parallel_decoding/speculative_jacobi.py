"""Speculative Jacobi decoding: Jacobi iteration that is exact under sampling. Each guess keeps the
distribution it was sampled from in the previous pass and is verified against that of this pass; rejected
ones are resampled (Teng et al. 2410.01699).
"""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, window: int, init: str) -> Parts:
    from ...drafters.parallel.blocks import SampledJacobi
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(SampledJacobi(init, kit.codec.columns, kit.codec.tokens), Fixed(window), TokenRejection())


METHOD = Method(
    key="speculative_jacobi",
    title="Speculative Jacobi decoding",
    paper="Teng et al. 2024, arXiv 2410.01699",
    summary="A window of guesses, each drawn from the model's own earlier opinion of its place and tested against the newest one.",
    knobs=(
        Knob("window", 6, 1, 64, "positions guessed ahead; the paper's 16 are patches of an image"),
        Knob(
            "init",
            "auto",
            choices=("auto", "context", "left", "above", "sample", "random"),
            help="what new positions are filled with: tokens of the text, the token to the left or above, a draw from the distribution to "
            "the left, or any token; auto: left on a picture, else the text",
        ),
    ),
    look="At a temperature above 0: draft and target distributions of a node are the same model's, one pass apart.",
    wins="Images and other text with weak order, where a place's distribution hardly depends on its neighbours.",
    loses="Ordinary text: a distribution read after a wrong token is a poor guess, so about one token a pass stands.",
    differs="As published for images. For text, new positions are initialised with tokens of the text.",
    compared="code",
    published={"window": 16, "init": "random"},
    aliases=("SJD",),
    claims=(
        Claim(
            "Above temperature 0 a probabilistic rule keeps more than exact fixed points.",
            "autoregressive",
            "accepted_length",
            figure="fewer steps at equal quality of pictures",
            place="abstract of 2410.01699",
            target="specviz-pictures",
            temperature=1.0,
        ),
    ),
    build=build,
)
