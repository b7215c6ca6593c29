"""DIVERSED's static ensemble: verify against a mixture of target and draft (Wang et al. 2604.07622). Its
weight draws the exact line between speed and fidelity."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, gamma: int, weight: float) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...policies import Fixed
    from ...verifiers import Mixture

    return Parts(DraftChain(kit.open("draft")), Fixed(gamma), Mixture(weight))


METHOD = Method(
    key="diversed",
    title="DIVERSED (mixture)",
    paper="Wang et al. 2026, arXiv 2604.07622",
    summary="Verifies against a mixture of target and draft: the weight says how much of the text may be the draft's.",
    exactness="approximate",
    knobs=(
        Knob("weight", 0.7, 0.0, 1.0, "share of the target in the mixture; 1 is exact, 0 accepts everything"),
        Knob("gamma", 4, 1, 16, "tokens drafted a round"),
    ),
    needs=frozenset({"draft"}),
    look="The drift at every token. With weight w a draft token is accepted with probability 1 - w TV(p, q), and the text is (1 - w) "
    "TV(p, q) from the target's. Speed for fidelity draws that line: move the weight and watch both.",
    wins="As the yardstick of lossy rules: at its distance from the target no rule accepts more.",
    loses="The draft's share is the same everywhere, also where the draft is wrong about a fact.",
    differs="The static weight of the paper; its learned weight per context is left out. At temperature 0 a token is accepted if it is "
    "the argmax of the mixture, which is ours.",
    compared="formula",
    relative="lenience",
    aliases=("assistant_ensemble_weight", "static ensemble verification"),
    claims=(
        Claim(
            "Judged by a mixture of both distributions, more of the same drafts is kept.",
            "speculative",
            "equal_drafts",
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
