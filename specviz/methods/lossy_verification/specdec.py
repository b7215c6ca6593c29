"""SpecDec's relaxed verification: keep a drafted token if it is among the target's top beta and its
log-probability at most tau below the best one's (Xia et al. 2203.16487). The paper drafts with a
non-autoregressive model that fills a block of 25 tokens in one pass."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, beta: int, tau: float, gamma: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...policies import Fixed
    from ...verifiers.allowed_tokens import TopBeta

    return Parts(DraftChain(kit.open("draft")), Fixed(gamma), TopBeta(beta, tau))


METHOD = Method(
    key="specdec",
    title="SpecDec (top-beta, tau)",
    paper="Xia et al. 2022, arXiv 2203.16487",
    summary="Keeps a drafted token that is one of the target's best few and not far behind the best. "
    "The first one that is not ends the draft, and the target's own token takes its place.",
    exactness="approximate",
    knobs=(
        Knob(
            "beta",
            5,
            1,
            50,
            "a token must be among so many of the target's best; 1 is exact at temperature 0",
        ),
        Knob("tau", 3.0, 0.0, 20.0, "and at most so many nats of log-probability behind the best"),
        Knob(
            "gamma",
            8,
            1,
            25,
            "tokens drafted a round; the paper's 25 come from a drafter that writes them in one pass",
        ),
    ),
    needs=frozenset({"draft"}),
    look="Tokens kept although the target would have written another one; the drift says how much probability that cost.",
    wins="Where several continuations are equally good and the draft need not guess the target's favourite.",
    loses="Where one token matters, a number or a name: second best is wrong there, and it passes.",
    differs="The test is the authors'. Their drafter is a model of its own that fills 25 positions in one pass; here a draft model "
    "drafts them one by one.",
    compared="code",
    published={"gamma": 25},
    claims=(
        Claim(
            "Accepting any of the target's top tokens keeps more than exact matching.",
            "speculative",
            "accepted_length",
            figure="about 5 times faster than plain decoding (translation)",
            place="abstract of 2203.16487",
            baseline_knobs={"gamma": 8},
            tokens=40,
        ),
    ),
    build=build,
)
