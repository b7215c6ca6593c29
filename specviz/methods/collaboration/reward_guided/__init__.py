"""Reward-guided speculative decoding: the small model generates whole steps, a reward model scores them,
and the large model rewrites those below a threshold (Liao et al. 2501.19324). The output is a mixture of
both models by design."""

from __future__ import annotations

from ....core import Drafter, Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, least: float, mixture: str, step: str, longest: int) -> Parts:
    from ....drafters.model.chain import DraftChain
    from ....loops import Stepwise
    from ....policies import Fixed
    from ....policies.stop_when import StopAtMark
    from ....verifiers import TokenRejection
    from ....verifiers.step_grade import RewardGrade

    steps, alone = StopAtMark(kit.piece, step, longest), Parts(Drafter(), Fixed(0), TokenRejection())
    verifier = RewardGrade(kit.head("reward"), least, mixture == "by chance")
    return Parts(
        DraftChain(kit.open("draft")), steps, verifier, Stepwise(alone, steps.is_complete_step, longest)
    )


METHOD = Method(
    key="reward_guided",
    title="Reward-guided speculative decoding",
    paper="Liao et al. 2025, arXiv 2501.19324",
    summary="Steps of the small model stay where a reward model finds them good; the large one writes the rest. "
    "Two writers are mixed on purpose: the text is neither's.",
    exactness="approximate",
    knobs=(
        Knob("least", 0.7, 0.0, 1.0, "reward from which on a step is kept; the authors take 0.7"),
        Knob(
            "mixture",
            "threshold",
            choices=("threshold", "by chance"),
            help="keep what reaches the threshold, which the paper proves best; or each step with its reward as the chance",
        ),
        Knob(
            "step",
            "sentence",
            choices=("sentence", "line", "paragraph"),
            help="what a step is; the paper's are paragraphs, ended by an empty line",
        ),
        Knob("longest", 32, 1, 512, "most tokens of a step"),
    ),
    needs=frozenset({"draft", "head:reward", "tap:final", "output:text"}),
    look="The reward of each step against its limit, and who wrote what stands in the text.",
    wins="Where the small model's steps are good in their own way: a step of twenty tokens costs the target one pass.",
    loses="A reward model is one more judge that may be wrong, and what it lets pass is the small model's, mistakes included.",
    differs="The mixture is the paper's. Its reward model is a large model for steps of mathematics; here a small head on the target's "
    "hidden states distinguishes the target's steps from the draft model's. Steps are sentences by default.",
    published={"step": "paragraph", "longest": 512},
    aliases=("RSD", "reward-guided", "process reward model"),
    trains=(
        Trained(
            "reward",
            "A network that tells the target's steps from the draft model's.",
            "specviz.models.judge",
            after="draft",
        ),
    ),
    claims=(
        Claim(
            "Steps that the reward model passes save passes of the target.",
            "autoregressive",
            "accepted_length",
            figure="up to 4.4 times fewer FLOPs",
            place="abstract of 2501.19324",
            knobs={"least": 0.5},
            tokens=128,
        ),
    ),
    build=build,
)
