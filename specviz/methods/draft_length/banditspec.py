"""BanditSpec: draft configurations are the arms of a bandit, whose reward is the speed of a round (Hou et
al. 2505.15141). UCBSpec uses upper confidence bounds; EXP3Spec is the adversarial variant with random arms.
An arm is a draft length, or a whole configuration: a lookup, a chain or a tree."""

from __future__ import annotations

from ...core import Budget, Knob, Method, Parts
from ...core.claim import Claim


def lengths(kit, count: int, shortest: int):
    from ...drafters.model.chain import DraftChain

    draft = DraftChain(kit.open("draft"))
    return [("", draft, Budget(gamma)) for gamma in range(shortest, shortest + count)]


def configurations(kit, count: int, shortest: int):
    """Return the bandit's candidates: drafters with their budgets, from few draft nodes without a draft
    model to many. All share one draft model, which each syncs before drafting."""
    from ...drafters.lookup.prompt_lookup import PromptLookup
    from ...drafters.model.chain import DraftChain, DraftShape
    from ...trees import sparse_tree

    model, lookup = kit.open("draft"), PromptLookup(3)
    chain, tree = DraftChain(model), DraftShape(model, sparse_tree(3, 4, 8), drawn=False)
    return [
        ("lookup", lookup, Budget(8)),
        ("chain of 2", chain, Budget(2)),
        ("chain of 5", chain, Budget(5)),
        ("tree of 8", tree, Budget(4, 3, 8)),
        ("chain of 10", chain, Budget(10)),
    ][:count]


ARMS = {"lengths": lengths, "configurations": configurations}


def build(
    kit, rule: str, choose: str, arms: int, shortest: int, radius: str, reward: str, delta: float
) -> Parts:
    from ...drafters.combined.policy_selected import PolicySelector
    from ...policies import Exp3, Ucb
    from ...verifiers import TokenRejection

    names, drafters, budgets = zip(*ARMS[choose](kit, arms, shortest))
    names = names if any(names) else ()
    policy = (
        Ucb(budgets, names, reward, radius, delta=delta)
        if rule == "UCBSpec"
        else Exp3(budgets, names, reward)
    )
    return Parts(PolicySelector(*drafters), policy, TokenRejection())


METHOD = Method(
    key="banditspec",
    title="BanditSpec",
    paper="Hou et al. 2025, arXiv 2505.15141",
    summary="Tries different ways to draft and, from how fast each one was, settles on the one that pays.",
    knobs=(
        Knob(
            "rule",
            "UCBSpec",
            choices=("UCBSpec", "EXP3Spec"),
            help="optimism with confidence bounds, or weighted chance",
        ),
        Knob(
            "choose",
            "lengths",
            choices=tuple(ARMS),
            help="what an arm is: a draft length, 1, 2, 3 and so on; or a lookup, chains of 2 and 5, a tree of 8, a chain of 10",
        ),
        Knob("arms", 4, 2, 12, "how many arms; there are five configurations"),
        Knob(
            "shortest",
            1,
            0,
            4,
            "length of the shortest draft that is an arm; 0 is plain decoding, as in the paper",
        ),
        Knob(
            "radius",
            "narrow",
            choices=("narrow", "paper", "code"),
            only_with=(("paper", "rule", ("UCBSpec",)), ("code", "rule", ("UCBSpec",))),
            help="what UCBSpec allows an arm that was tried little: sqrt(0.05 ln t / pulls); the paper's bound; or that of the "
            "authors' program",
        ),
        Knob(
            "reward",
            "speed",
            choices=("speed", "tokens"),
            help="what a round earns: tokens a second, or tokens, as in the paper's theory",
        ),
        Knob("delta", 0.1, 0.001, 1.0, "confidence of the paper's bound, which does not say its value"),
    ),
    needs=frozenset({"draft"}),
    look="The arms over time: all are tried at first, then one is pulled most.",
    wins="On a machine and a text nobody tuned gamma for.",
    loses="On short answers, which end before it has learned anything; the clock has a say, so sampled runs may differ.",
    differs="Both rules are the paper's. Its confidence bound is so wide that all candidates are still tried equally after a few hundred "
    "tokens; the default here is narrower. Plain decoding is not a candidate. Each answer starts with a new state, as published.",
    published={"arms": 5, "shortest": 0, "radius": "paper"},
    claims=(
        Claim(
            "Bandits find a length that costs less modelled time than a long fixed one.",
            "speculative",
            "modelled_time",
            figure="105.7 tokens/s, 98.2 with EAGLE-2's fixed tree",
            place="full text of 2505.15141, Llama-3-8B on Spec-Bench",
            baseline_knobs={"gamma": 8},
            tokens=128,
        ),
    ),
    build=build,
)
