"""FastCoT: a window of Jacobi guesses accompanies the reasoning; after some tokens the reasoning is cut and
the unverified window is appended before the answer (Zhang et al. 2311.08263).

The reasoning before the cut is exact, the rest is not. The paper does not publish the time and width of the
cut; these values are this project's.
"""

from __future__ import annotations

from ....core import Knob, Method, Parts
from ....core.claim import Claim


def build(kit, window: int, rounds: int) -> Parts:
    from ....drafters.parallel.jacobi import Jacobi
    from ....policies import Fixed
    from .verifier import Glance

    return Parts(Jacobi(), Fixed(window), Glance(rounds))


METHOD = Method(
    key="fastcot",
    title="FastCoT",
    paper="Zhang et al. 2023, arXiv 2311.08263",
    summary="Thinks exactly for a while, then takes a rough glance at the rest of its thought instead of writing it out.",
    exactness="approximate",
    unchecked="keeps one window of guesses that the target has not checked",
    knobs=(
        Knob("window", 8, 1, 40, "positions guessed ahead, and taken over by the glance"),
        Knob("rounds", 24, 1, 1000, "passes before the glance"),
    ),
    look="One round whose whole window is kept unchecked: rough words in the middle of exact ones.",
    wins="Reasoning whose details do not matter for the answer: it skips them.",
    loses="Wherever they do matter, and in every text that people read to the end.",
    differs="Only the abstract was available. The window after the exact text and the look at it are the paper's; when it is taken and "
    "the window's width are ours.",
    claims=(
        Claim(
            "Guesses beside plain decoding save passes.",
            "autoregressive",
            "accepted_length",
            figure="nearly 20 % less time",
            place="abstract of 2311.08263",
            tokens=40,
        ),
    ),
    build=build,
)
