"""LiLiCorr: a small transformer over the lattice of DFlash's top candidates scores every transition between
neighbouring positions at once; a walk from left to right drafts the chain (2608.20530). Each token is
sampled from the walk's own scores, so token rejection is exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.heads.masked_block import BlockChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(
        BlockChain(kit.head("dflash"), correction=kit.head("lilicorr")), Fixed(gamma), TokenRejection()
    )


METHOD = Method(
    key="lilicorr",
    title="LiLiCorr",
    paper="NVIDIA 2026, arXiv 2608.20530",
    summary="All candidates of DFlash's block look at one another, and the chain that hangs together is drafted.",
    knobs=(
        Knob(
            "gamma",
            3,
            1,
            15,
            "tokens drafted a round, as far as the block was trained; published blocks have 16",
        ),
    ),
    needs=frozenset({"head:dflash", "head:lilicorr", "tap:layer", "embed", "head"}),
    look="The lattice of candidates, and where the walk through it leaves the positions' own favourites.",
    wins="Blocks whose positions hesitate between the same two continuations: the candidates of one agree with each other.",
    loses="Small machines: the lattice is a pass of its own over all candidates, though a tiny one.",
    differs="Read in an engine's public port, whose names of weights are kept; over a frozen DFlash. Ours adds the drafter's "
    "log-probability to each score, as minutes of training do not relearn it. The text row is DFlash's projected one, which is a "
    "guess. The walk samples above temperature 0.",
    compared="code",
    aliases=("lilicorr",),
    trains=(
        Trained(
            "lilicorr",
            "A transformer over the lattice of DFlash's candidates.",
            f"{__name__}.lilicorr_network",
            after="dflash",
        ),
    ),
    relative="dflash",
    claims=(
        Claim(
            "Scored neighbours keep more than DFlash's independent places.",
            "dflash",
            "accepted_length",
            tokens=40,
            baseline_knobs={"gamma": 5},
            knobs={"gamma": 5},
        ),
    ),
    build=build,
)
