"""The heuristic schedule of transformers' assisted generation: two more draft tokens after a fully accepted
round, one fewer after any other."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, first: int, up: int, down: int, most: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...policies import Heuristic
    from ...verifiers import TokenRejection

    return Parts(DraftChain(kit.open("draft")), Heuristic(first, up, down, most), TokenRejection())


METHOD = Method(
    key="heuristic_schedule",
    title="Heuristic schedule",
    paper="Gante 2023, huggingface.co/blog/assisted-generation",
    summary="Lengthens the draft after a success and shortens it after a failure.",
    knobs=(
        Knob("first", 5, 1, 20, "length of the first draft"),
        Knob("up", 2, 0, 10, "added when everything was accepted"),
        Knob("down", 1, 0, 10, "taken away otherwise"),
        Knob("most", 20, 0, 64, "longest draft; 0: no bound, as in transformers"),
    ),
    needs=frozenset({"draft"}),
    look="The draft length as a saw: climbing through easy text, falling at each surprise.",
    wins="Where easy and hard stretches are long, so that the last round predicts the next.",
    loses="Where surprises are scattered: it is always one round late.",
    differs="The schedule is transformers', with a longest draft added: on a slow machine one rejection in a long draft costs more than "
    "the draft gains.",
    compared="code",
    aliases=("num_assistant_tokens_schedule heuristic",),
    published={"most": 0},
    claims=(
        Claim(
            "A length that follows success costs less modelled time than a fixed one.",
            "speculative",
            "modelled_time",
            baseline_knobs={"gamma": 5},
        ),
    ),
    build=build,
)
