"""Blockwise parallel decoding: heads predict a block of tokens at once, and the target verifies the block
and predicts the next one in the same pass (Stern et al. 1811.03115). The paper's exact rule accepts a token
that equals the target's greedy choice; here a token is accepted with its target probability, which is the
same at temperature 0 and exact at every other."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.heads.lattice import BlockLattice
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(BlockLattice(kit.head("blockwise")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="blockwise",
    title="Blockwise parallel decoding",
    paper="Stern et al. 2018, arXiv 1811.03115",
    summary="The idea that began it all: extra heads guess a whole block at once, and the next pass keeps as much of it as is right.",
    knobs=(
        Knob(
            "gamma",
            2,
            1,
            15,
            "tokens guessed after the model's own, as far as heads were trained; the paper is fastest with 7",
        ),
    ),
    needs=frozenset({"head:blockwise", "head", "tap:final"}),
    look="How sure each head is of its best token: far heads guess common words and repeat their neighbours.",
    wins="Where every token in the pass is costly: one short chain, no tree, and a draft that costs next to nothing.",
    loses="Open text: no head knows what the others guess, so a block seldom hangs together beyond its second token.",
    differs="The paper trains the model with its heads, or the heads alone; here the target is unchanged, and its own token is the "
    "block's first. The paper's looser criteria (top-k, distance) are left out.",
    published={"gamma": 7},
    aliases=("BPD", "blockwise parallel decoding"),
    trains=(
        Trained(
            "blockwise",
            "Seven heads that share a layer and predict a block at once.",
            f"{__name__}.blockwise_network",
            one_pass=True,
        ),
    ),
    claims=(
        Claim(
            "Heads for several places save passes.",
            "autoregressive",
            "accepted_length",
            figure="iterations fall by up to 2 times",
            place="abstract of 1811.03115",
            tokens=40,
            knobs={"gamma": 4},
        ),
    ),
    build=build,
)
