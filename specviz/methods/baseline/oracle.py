"""The oracle: drafts that are always accepted and cost nothing. It bounds the speed of every drafter of the
same draft length on this machine."""

from __future__ import annotations

from ...core import Knob, Method, Parts


def build(kit, gamma: int) -> Parts:
    from ...drafters.model.oracle import OracleChain
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(OracleChain(kit.open("target")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="oracle",
    title="Oracle (upper bound)",
    paper="",
    summary="The target drafts for itself while the timer is stopped: every draft token is right and free. It shows how much any "
    "drafter of this length could gain here.",
    knobs=(Knob("gamma", 4, 1, 16, "tokens drafted a round; compare with methods of the same draft length"),),
    look="Every draft token is accepted. The time of a round is verification and sampling only.",
    wins="It is a bound, not a method: its drafts are computed outside the measured time.",
    loses="In real time it is slower than plain decoding, because it runs the target twice.",
    differs="Not from a paper. Benchmarks of serving engines call it replay.",
    compared="formula",
    bound=True,
    aliases=("replay", "upper bound", "perfect draft"),
    build=build,
)
