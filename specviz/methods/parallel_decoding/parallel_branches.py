"""Parallel branches inside one sequence: after an outline, all its sections are generated at the same time
under a mask that hides them from each other (Yu 2025, 2503.20533). One forward pass generates one token of
every section."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, branches: int, title: int, length: int) -> Parts:
    from ...drafters.parallel.branches import Branches
    from ...loops.drafting_passes import count_drafting_passes
    from ...policies import Fixed
    from ...verifiers.accept_all import AcceptAll

    most = branches * (title + length + 8)
    return Parts(
        Branches(branches, title, length, kit.encode, kit.ends_line),
        Fixed(most, 1, most),
        AcceptAll(),
        count_drafting_passes,
    )


METHOD = Method(
    key="parallel_branches",
    title="Parallel branches",
    paper="Yu 2025, arXiv 2503.20533",
    summary="Makes an outline first and then writes all of its points at once, each without knowing what the others say.",
    exactness="approximate",
    unchecked="writes an outline and branches that the target has not checked as one text",
    knobs=(
        Knob("branches", 3, 2, 8, "points of the outline, written at the same time"),
        Knob("title", 12, 2, 32, "most tokens of a point's title"),
        Knob("length", 40, 4, 128, "most tokens of a point"),
    ),
    needs=frozenset({"tree", "output:text"}),
    look="After the outline, the points grow side by side; each pass adds a token to all of them.",
    wins="Lists, comparisons, step-by-step plans: points that do not depend on each other cost one pass a token for all.",
    loses="Stories and sums, where every sentence needs the one before it; and it makes an outline of everything.",
    differs="The paper requests the outline in its prompt, has the model mark it, and removes the marks. Here the outline is started for "
    "the model and stays in the answer. A branch ends with its line.",
    compared="code",
    claims=(
        Claim(
            "Sections of an answer, written side by side, need fewer passes.",
            "autoregressive",
            "accepted_length",
            figure="more than 100 % faster",
            place="abstract of 2503.20533",
            tokens=128,
        ),
    ),
    build=build,
)
