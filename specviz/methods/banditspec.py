"""BanditSpec: each draft length is an arm of a slot machine, its reward the speed of the round; a bandit rule finds the arm that
pays while decoding (Hou et al. 2505.15141). UCBSpec trusts the mean with an allowance for what was tried little; EXP3Spec draws
arms at random and assumes nothing about them.
"""
from __future__ import annotations

from ..core import Knob, Method, Parts
from ..drafters import DraftChain
from ..policies import Exp3, Ucb
from ..verifiers import TokenRejection

RULES = {"UCBSpec": Ucb, "EXP3Spec": Exp3}


def build(kit, rule: str, arms: int) -> Parts:
    return Parts(DraftChain(kit.open("draft")), RULES[rule](range(1, arms + 1)), TokenRejection())


METHOD = Method(
    key="banditspec",
    title="BanditSpec",
    paper="Hou et al. 2025, arXiv 2505.15141",
    family="Draft length",
    summary="Tries different draft lengths and, from how fast each one was, settles on the one that pays.",
    knobs=(
        Knob("rule", "UCBSpec", choices=("UCBSpec", "EXP3Spec"), help="optimism with confidence bounds, or weighted chance"),
        Knob("arms", 4, 2, 12, "draft lengths to choose from: 1 to this many"),
    ),
    needs=frozenset({"draft"}),
    look="The arms over time: all are tried at first, then one is pulled most.",
    wins="On a machine and a text nobody tuned gamma for.",
    loses="On short answers, which end before it has learned anything; the clock has a say, so sampled runs may differ.",
    build=build,
)
