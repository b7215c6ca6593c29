"""Predicted output: the caller supplies a text that the answer should resemble, and it is the source of
drafts; the output is still the target's. Without such a text the prompt is the prediction."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(kit, gamma: int, longest: int, least: int, caution: float) -> Parts:
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...drafters.lookup.prediction import Prediction, predicted_text
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        with_cost_gate(Prediction(predicted_text(kit), longest, least), caution),
        Fixed(gamma),
        TokenRejection(),
    )


METHOD = Method(
    key="predicted_output",
    title="Predicted output",
    paper="OpenAI 2024, platform.openai.com/docs/guides/predicted-outputs",
    summary="Drafts from a text that you expect the answer to be like, and finds its place again wherever the answer differs.",
    knobs=(
        Knob("gamma", 64, 1, 256, "most tokens copied a round; the gate lets through as many as pay"),
        Knob("longest", 8, 1, 24, "longest end of the answer by which the place is found again"),
        Knob("least", 2, 1, 8, "shortest end that may tell the place"),
        CAUTION,
    ),
    look="Long copies from the predicted text, a correction where the answer differs, and how soon it is back on the track.",
    wins="Edits of a text or a program: nearly all of the answer is known beforehand, and each round copies dozens of tokens.",
    loses="A prediction that is beside the point is left behind after a few tokens; then it is plain decoding.",
    differs="The APIs do not publish how they find their position again after a mismatch. Here it is the longest suffix of the answer "
    "that occurs in the prediction, with our cost gate. Without a prediction the prompt is used.",
    aliases=("predicted outputs", "prediction", "speculative edits"),
    claims=(
        Claim(
            "An answer that the caller expects saves passes.",
            "autoregressive",
            "accepted_length",
            tasks=("edit", "quote", "cite"),
            given="prompt",
            tokens=40,
        ),
    ),
    build=build,
)
