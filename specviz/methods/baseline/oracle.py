"""The oracle: drafts that cost nothing, always accepted or as often as you set. It bounds the speed of
every drafter of the same draft length and acceptance on this machine."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...drafters.model.synthetic_acceptance import read_rates


def build(kit, gamma: int, by: str, acceptance: float, length: float, rates: str) -> Parts:
    from ...drafters.model.oracle import OracleChain
    from ...drafters.model.synthetic_acceptance import rates_of_length
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    accept = {
        "acceptance": () if acceptance == 1 else (acceptance,) * gamma,
        "mean length": rates_of_length(length, gamma),
        "rates": read_rates(rates),
    }[by]
    return Parts(OracleChain(kit.open("target"), accept), Fixed(len(accept) or gamma), TokenRejection())


METHOD = Method(
    key="oracle",
    title="Oracle (upper bound)",
    paper="",
    summary="The target drafts for itself while the timer is stopped: every draft token is right and free, or as many as you set. It "
    "shows how much any drafter of this length and acceptance could gain here.",
    knobs=(
        Knob("gamma", 4, 1, 16, "tokens drafted a round; compare with methods of the same draft length"),
        Knob(
            "by",
            "acceptance",
            choices=("acceptance", "mean length", "rates"),
            help="which of the next three knobs says how often drafts are right",
        ),
        Knob(
            "acceptance",
            1.0,
            0.0,
            1.0,
            "chance that a draft token is accepted if those before it were; 1: a bound",
        ),
        Knob("length", 3.0, 1.0, 17.0, "mean accepted length: tokens a pass, the target's own one included"),
        Knob(
            "rates",
            "0.8, 0.6, 0.45, 0.35",
            help="acceptance at places 1, 2, ... as a server reports it (share of all drafts); the draft is as long as the list",
            parse=read_rates,
        ),
    ),
    look="Every draft token is accepted, or as many as set; a wrong one is proposed on purpose and rejected as any other. The time of "
    "a round is verification and sampling only.",
    wins="It is a bound, not a method: its drafts are computed outside the measured time. What if my drafter had 0.8? Set it and see.",
    loses="In real time it is slower than plain decoding, because it runs the target twice.",
    differs="Not from a paper. Benchmarks of serving engines call it replay. Their synthetic acceptance ignores the target's "
    "distribution, so their text is rubbish; here wrong tokens are proposed and the text stays the target's.",
    compared="formula",
    bound=True,
    aliases=("replay", "upper bound", "perfect draft", "synthetic acceptance", "simulated acceptance"),
    build=build,
)
