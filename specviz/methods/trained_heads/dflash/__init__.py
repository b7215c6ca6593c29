"""DFlash: a small network on the target's hidden states drafts a whole block in one pass by filling in mask
tokens (2602.06036). Each position is sampled from its own distribution, so token rejection is exact at
every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.heads.masked_block import BlockChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(BlockChain(kit.head("dflash")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="dflash",
    title="DFlash",
    paper="DFlash 2026, arXiv 2602.06036",
    summary="All draft tokens at once: a few layers read the target's hidden states and fill in a block of masked positions.",
    knobs=(
        Knob(
            "gamma",
            3,
            1,
            15,
            "tokens drafted a round, as far as the block was trained; the paper's blocks have 16",
        ),
    ),
    needs=frozenset({"head:dflash", "tap:layer", "embed", "head"}),
    look="A draft costs the same whether it has two tokens or seven; the later positions are guessed without knowing the earlier ones.",
    wins="Wherever a draft model's price is its passes: a block has one.",
    loses="Open text: two good continuations get mixed, as no position knows what the one before it became.",
    differs="The block, its masks and the hidden states it reads are the paper's, and published files load. Every token is sampled and "
    "verified by rejection sampling, so temperatures above 0 are exact.",
    trains=(
        Trained(
            "dflash",
            "A few layers that fill in a block of mask tokens in one forward pass.",
            "specviz.models.masked_block",
            one_pass=True,
        ),
    ),
    claims=(
        Claim(
            "A block drafted in one pass needs fewer passes of the drafter than EAGLE-3.",
            "eagle3",
            "draft_passes",
            figure="up to 2.5 times the speed-up of EAGLE-3",
            place="abstract of 2602.06036",
            tokens=40,
            knobs={"gamma": 5},
        ),
    ),
    build=build,
)
