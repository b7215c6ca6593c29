"""FastCoT: a window of Jacobi guesses runs along with the reasoning; after a while the reasoning is cut short and the window,
rough as it is, is taken as a glance at the rest of it before the answer (Zhang et al. 2311.08263).

The reasoning up to the glance is exact, what follows is not. When to glance, and how wide, is not public; the numbers are ours.
"""
from __future__ import annotations

from ....core import Knob, Method, Parts


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
        Knob("window", 8, 1, 40, "places guessed ahead, and taken over by the glance"),
        Knob("rounds", 24, 1, 1000, "passes before the glance"),
    ),
    look="One round whose whole window is kept unchecked: rough words in the middle of exact ones.",
    wins="Reasoning whose details do not matter for the answer: it skips them.",
    loses="Wherever they do matter, and in every text that people read to the end.",
    differs="Only the abstract is public here: the window beside the exact text and the glance at it are the paper's, when it "
            "looks and how wide is ours.",
    build=build,
)
