"""Superposed decoding: the input embedding is a mixture of several drafts' last tokens, so one pass
continues all of them; the most probable draft is used, the others are shown next to it (Shen et al.
2405.18400)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, drafts: int, length: int, best: int, ranking_temperature: float, blend: float) -> Parts:
    from ...drafters.parallel.superposed import Superposed
    from ...loops.drafting_passes import count_drafting_passes
    from ...policies import Fixed
    from ...verifiers.accept_all import AcceptAll

    drafter = Superposed(drafts, length, max(best, drafts), ranking_temperature, blend)
    return Parts(drafter, Fixed(length), AcceptAll(), count_drafting_passes)


METHOD = Method(
    key="superposed",
    title="Superposed decoding",
    paper="Shen et al. 2024, arXiv 2405.18400",
    summary="Thinks of several continuations at once, as one blurred thought, and writes down the most probable of them.",
    exactness="approximate",
    unchecked="writes drafts that the target has not checked",
    knobs=(
        Knob(
            "drafts",
            3,
            1,
            8,
            "continuations kept (k); with one of them and blend 0 it is plain greedy decoding",
        ),
        Knob("length", 10, 1, 20, "tokens before the best one is written; beyond ten they drift apart"),
        Knob("best", 9, 1, 32, "the target's best tokens that are considered a step"),
        Knob(
            "ranking_temperature", 0.06, 0.01, 1.0, "temperature of the target's distribution in the ranking"
        ),
        Knob(
            "blend",
            0.54,
            0.0,
            0.95,
            "weight of the n-gram counts against the target (a); they are counted in this text only",
        ),
    ),
    needs=frozenset({"embed", "entry"}),
    look="The other continuations beside the one that was written, and how much each of them weighed in every pass.",
    wins="Suggestions to choose from: three or more of them for little more than the price of one.",
    loses="It is no faster for a single text: a pass still writes one token of each, and the blend makes it less exact.",
    differs="As published, with n-gram counts of this text instead of a corpus.",
    compared="code",
    claims=(
        Claim(
            "Several continuations cost about as many passes as one.",
            "autoregressive",
            "texts",
            figure="2.44 times faster for 3 drafts",
            place="abstract of 2405.18400",
            tokens=40,
        ),
    ),
    build=build,
)
