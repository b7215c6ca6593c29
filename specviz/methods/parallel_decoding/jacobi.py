"""Jacobi decoding: guess a block of tokens, let the target correct all of them in one pass, repeat; tokens
that agree are final (Santilli et al. 2305.10427). At temperature 0 the fixed point is the greedy output.
The paper's rule is greedy at any temperature; here, above 0, each guess is accepted with its target
probability, which is exact because guesses are fixed before anything of the round is sampled."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, block: int, window: str) -> Parts:
    from ...drafters.parallel.blocks import BlockJacobi
    from ...drafters.parallel.jacobi import Jacobi
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        Jacobi() if window == "sliding" else BlockJacobi(block, "prompt"), Fixed(block), TokenRejection()
    )


METHOD = Method(
    key="jacobi",
    title="Jacobi decoding",
    paper="Santilli et al. 2023, arXiv 2305.10427",
    summary="Starts from a random block of tokens and lets the model correct all of them at once, again and again.",
    knobs=(
        Knob(
            "block",
            4,
            1,
            128,
            "tokens guessed and corrected together; the paper's block is as long as the answer",
        ),
        Knob(
            "window",
            "sliding",
            choices=("sliding", "fixed"),
            help="sliding: filled up again at its end after each pass; fixed: the paper's, corrected until all of it stands",
        ),
    ),
    look="Guesses that were corrected in the pass before and now stand: the staircase of the trajectory grid.",
    wins="With models trained for it (consistency models), and on very predictable text.",
    loses="An ordinary model seldom gets a token right while the one before it is still wrong: little more than one a pass.",
    differs="The paper fixes at least one token per pass and stops when nothing changes; here all tokens that agree are written at once "
    "(the rule of consistency models). The sliding window is ours.",
    compared="code",
    published={"window": "fixed", "block": 128},
    claims=(
        Claim(
            "Fixed-point iteration needs fewer passes than tokens.",
            "autoregressive",
            "accepted_length",
            figure="up to 38 % faster (translation)",
            place="abstract of 2305.10427",
            tokens=40,
        ),
    ),
    build=build,
)
