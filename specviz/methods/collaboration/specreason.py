"""SpecReason: the small model generates whole reasoning steps; the large model scores them and rewrites the
poor ones (Pan et al. 2504.07891). An accepted step is kept unchanged: it has to be good, not equal to the
large model's."""

from __future__ import annotations

from ...core import Drafter, Knob, Method, Parts
from ...core.claim import Claim


def build(kit, least: float, step: str, longest: int, first: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...loops import Stepwise
    from ...policies import Fixed
    from ...policies.stop_when import StopAtMark
    from ...verifiers import TokenRejection
    from ...verifiers.step_grade import StepGrade

    steps, alone = StopAtMark(kit.piece, step, longest), Parts(Drafter(), Fixed(0), TokenRejection())
    return Parts(
        DraftChain(kit.open("middle")),
        steps,
        StepGrade(least),
        Stepwise(alone, steps.is_complete_step, longest, first),
    )


METHOD = Method(
    key="specreason",
    title="SpecReason (step by step)",
    paper="Pan et al. 2025, arXiv 2504.07891",
    summary="The small model writes a whole step, the target grades it from 0 to 9 and keeps it or writes its own. "
    "The paper asks for the grade in words; a target this small cannot judge, so its mean probability of the step is the grade.",
    exactness="approximate",
    knobs=(
        Knob(
            "least",
            7.0,
            0.0,
            9.0,
            "grade from which on a step is kept: nine times the geometric mean of its tokens' probabilities",
        ),
        Knob(
            "step",
            "sentence",
            choices=("sentence", "line", "paragraph"),
            help="what a step is; the paper's are paragraphs, which end with an empty line",
        ),
        Knob("longest", 32, 1, 512, "most tokens of a step; the paper allows 512"),
        Knob("first", 0, 0, 64, "steps at the beginning that the target writes by itself"),
    ),
    needs=frozenset({"middle", "output:text"}),
    look="Whole sentences that are kept or thrown away at once; one bad token does not matter, a poor step does.",
    wins="When the small model is good at most steps: a step of twenty tokens costs the target one pass.",
    loses="A refused step is written twice, and a kept one is the small model's, mistakes included.",
    differs="The grade of a step is computed from the target's probabilities, not written by it in words. Steps are sentences by "
    "default. An answer ends with the target's end token, not at two equal steps or a boxed result.",
    published={"step": "paragraph", "longest": 512},
    claims=(
        Claim(
            "The small model writes steps that the large one only grades: fewer passes of the large one.",
            "autoregressive",
            "accepted_length",
            figure="1.5 to 2.5 times faster than the large model alone",
            place="abstract of 2504.07891",
            tokens=128,
            knobs={"least": 5.0},
        ),
    ),
    build=build,
)
