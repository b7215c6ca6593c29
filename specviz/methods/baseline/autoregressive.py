"""Plain decoding: no draft, one token per forward pass of the target. The baseline of every comparison."""

from __future__ import annotations

from ...core import Drafter, Method, Parts


def build(kit) -> Parts:
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(Drafter(), Fixed(gamma=0), TokenRejection())


METHOD = Method(
    key="autoregressive",
    title="Plain decoding",
    paper="",
    summary="The target writes one token per pass. Every other lane must write what this one would, only faster.",
    look="Each round is one pass of the target and one token: nothing is guessed, nothing is refused.",
    wins="It is the yardstick: its speed is 1 by definition.",
    loses="Each pass reads all weights of the model to write a single token.",
    differs="As published.",
    compared="formula",
    any_order=True,
    build=build,
)
