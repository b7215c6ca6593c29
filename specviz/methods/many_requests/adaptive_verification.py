"""Adaptive verification: predict the acceptance of each drafted token from the draft's confidence, and verify
the tokens that repay their measured cost (vLLM 0.32)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, draft: str, cut: str, most: int, every: int, uncut: int) -> Parts:
    from ...drafters.lookup.prompt_lookup import PromptLookup
    from ...drafters.model.chain import DraftChain
    from ...loops.batched import batch_of_one
    from ...policies import AdaptiveVerification
    from ...verifiers import TokenRejection

    steps = draft == "model"
    drafter = DraftChain(kit.open("draft")) if steps else PromptLookup(3, False)
    policy = AdaptiveVerification(most, every, uncut, cut == "threshold", steps)
    return Parts(drafter, policy, TokenRejection(), batch_of_one)


METHOD = Method(
    key="adaptive_verification",
    title="Adaptive verification",
    paper="vLLM 0.32, pull request 52228",
    summary="Learns while it serves how often a draft of a given confidence is right, and verifies the tokens that repay their cost.",
    knobs=(
        Knob(
            "draft",
            "model",
            choices=("model", "prompt lookup"),
            help="what drafts; a copy's confidence is the length of its match",
        ),
        Knob(
            "cut",
            "threshold",
            choices=("threshold", "budget"),
            help="verify all tokens above what one costs, or a number of tokens chosen from the round before, as vLLM does",
            by_time=True,
        ),
        Knob("most", 8, 1, 16, "longest draft"),
        Knob("every", 16, 1, 200, "rounds between two refits of the acceptance model"),
        Knob(
            "uncut", 16, 0, 64, "every so many rounds the whole draft is verified, to learn from it; 0: never"
        ),
    ),
    needs=frozenset({"draft"}),
    look="The expected survival of each drafted token against the limit: what is below is not verified. With many requests, who gets rows.",
    wins="Under load, and on texts that change between easy and hard: the length follows the draft's confidence and the machine's costs.",
    loses="Its first rounds are spent measuring. A draft whose confidence says little about its acceptance gains little.",
    differs="Model, refit and budget are those of vLLM's source. Ours: the threshold, rounds without a cut, a draft model that stops "
    "where a step does not pay, and costs fitted while decoding instead of profiled before.",
    compared="code",
    published={"cut": "budget", "every": 100, "uncut": 0},
    relative="smartspec",
    aliases=("adaptive-verification", "acceptance estimator", "confidence-scheduled verification"),
    by_time=True,
    claims=(
        Claim(
            "Choosing what to verify by predicted acceptance costs fewer tokens of the batch's passes.",
            "speculative",
            "batch_rows",
            figure="1,589 to 4,509 tokens/s",
            place="vLLM, issue 52992, 64 requests",
            requests=4,
            baseline_knobs={"gamma": 8},
            tokens=96,
        ),
    ),
    build=build,
)
