"""DSpark: a block drafter whose places know the token before them through a matrix of low rank, and which says how far it trusts
itself (DeepSeek's DSpark, as the public code of its authors has it). Draws are one after the other through the Markov head, so
each has the distribution it was drawn from and token rejection is exact.
"""
from __future__ import annotations

from ...core import Knob, Method, Parts, Trained


def build(kit, gamma: int, sure: float) -> Parts:
    from ...drafters.heads.block import BlockChain
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(BlockChain(kit.head("dspark"), sure), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="dspark",
    title="DSpark",
    paper="DSpark 2026, the authors' code DeepSpec",
    summary="A block drafted in one pass, where each token still knows the one before it, cut where the drafter stops trusting itself.",
    knobs=(
        Knob("gamma", 7, 1, 15, "tokens drafted a round, as far as the block was trained; the authors' blocks have 7"),
        Knob("sure", 0.3, 0.0, 1.0, "the draft ends where all of it is expected to pass with less than this chance; 0 drafts the block"),
    ),
    needs=frozenset({"head:dspark", "tap:layer", "embed", "head"}),
    look="Long drafts where the text is easy, short ones where it is open: the confidence of each place stands beside its verdict.",
    wins="Everywhere a block drafter does; the Markov head mends what places guessed alone get wrong.",
    loses="At high temperature confidence is low and blocks are cut short.",
    differs="Written from the authors' public code; how the block ends (``sure``) is its own trust in all that it drafted.",
    trains=(Trained("dspark", "A block drafter with a Markov head and a confidence head.",
                    "specviz.models.block", one_pass=True),),
    build=build,
)
