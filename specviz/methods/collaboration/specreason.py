"""SpecReason: the small model writes whole steps of reasoning, the large one grades them and writes anew those it finds poor (Pan et
al. 2504.07891). A step that passes stays as it is: what counts is that it is good, not that it is the large model's.
"""
from __future__ import annotations

from ...core import Drafter, Knob, Method, Parts
from ...drafters.model.chain import DraftChain
from ...loops import Stepwise
from ...policies import Fixed
from ...policies.until import Until
from ...verifiers import TokenRejection
from ...verifiers.steps import Grade

MARKS = {"sentence": (b".", b"!", b"?", b"\n"), "line": (b"\n",)}


def build(kit, least: float, step: str, longest: int, first: int) -> Parts:
    def ends(token: int) -> bool:
        return kit.piece(token).endswith(MARKS[step])

    alone = Parts(Drafter(), Fixed(0), TokenRejection())
    return Parts(DraftChain(kit.open("draft")), Until(longest, lambda one: ends(one.token)), Grade(least),
                 Stepwise(alone, ends, longest, first))


METHOD = Method(
    key="specreason",
    title="SpecReason (step by step)",
    paper="Pan et al. 2025, arXiv 2504.07891",
    summary="The small model writes a whole step, the target grades it from 0 to 9 and keeps it or writes its own. "
            "The paper asks for the grade in words; a target this small cannot judge, so its mean probability of the step is the grade.",
    exactness="approximate",
    knobs=(
        Knob("least", 7.0, 0.0, 9.0, "grade from which on a step is kept: nine times the geometric mean of its tokens' probabilities"),
        Knob("step", "sentence", choices=tuple(MARKS), help="what a step is; the paper's steps are paragraphs"),
        Knob("longest", 32, 1, 128, "most tokens of a step; the paper allows 512"),
        Knob("first", 0, 0, 8, "steps at the beginning that the target writes by itself"),
    ),
    needs=frozenset({"draft"}),
    look="Whole sentences that are kept or thrown away at once; one bad token does not matter, a poor step does.",
    wins="When the small model is good at most steps: a step of twenty tokens costs the target one pass.",
    loses="A refused step is written twice, and a kept one is the small model's, mistakes included.",
    differs="Steps are sentences or lines of at most 128 tokens, for models that write short ones; the authors' are "
            "paragraphs of up to 512. Their ends of an answer (a boxed result, two equal steps) are not looked for.",
    compared="code",
    build=build,
)
