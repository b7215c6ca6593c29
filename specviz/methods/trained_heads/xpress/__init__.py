"""XPress: a small causal network refines DFlash's whole block at once, pass after pass, from the tokens of
the pass before (2608.02438)."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import note


def build(kit, walk: str, gamma: int, passes: int) -> Parts:
    from ....drafters.heads.masked_block import BlockChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .xpress_drafter import RefinedBlock

    dflash, refiner = kit.head("dflash"), kit.head("xpress")
    drafter = (
        RefinedBlock(dflash, refiner, passes)
        if walk == "all at once"
        else BlockChain(dflash, correction=refiner)
    )
    return Parts(drafter, Fixed(gamma), TokenRejection())


METHOD = Method(
    key="xpress",
    title="XPress",
    paper="XPress 2026, arXiv 2608.02438",
    summary="DFlash's block, refined a few times: each pass reads the tokens of the pass before and corrects all positions at once.",
    knobs=(
        Knob(
            "walk",
            "all at once",
            choices=("all at once", "left to right"),
            help="refine all positions together, as the authors do, or sample them one after the other",
        ),
        Knob("gamma", 3, 1, 15, "tokens drafted a round, as far as the block was trained"),
        Knob("passes", 6, 1, 16, "passes of the refiner; a block of n tokens is settled after n"),
    ),
    needs=frozenset({"head:dflash", "head:xpress", "tap:layer", "embed", "head"}),
    look="Row by row, how the block settles from the left: a position that agrees with the final draft stays so.",
    wins="Blocks whose positions hesitate between two continuations; the passes are small and their number is fixed.",
    loses="Where DFlash's own block is right already, or wrong for want of depth: the refiner chooses among its candidates.",
    differs="The arithmetic is that of the authors' public code. Ours is trained over a frozen DFlash on the true tokens before each "
    "position; the authors train both on the refiner's own passes. It reads the previous token by a projection of the target's "
    "embedding, where theirs has a table, corrects the 64 top tokens of a position, and leaves out the anchor's row. Its "
    "passes choose tokens; sampling from left to right is ours.",
    compared="code",
    aliases=("xpress", "xPress"),
    trains=(
        Trained(
            "xpress",
            "A causal refiner of DFlash's blocks.",
            f"{__name__}.xpress_network",
            after="dflash",
        ),
    ),
    notes={
        "refined": note(
            "grid",
            "The block after each pass of the refiner (XPress).",
            rows=(
                "tokens of the block: DFlash's own, then those of each pass",
                [{"tokens": [11, 12, 13]}, {"tokens": [11, 14, 13]}, {"tokens": [11, 14, 15]}],
            ),
            changed=("positions that each pass changed", [1, 1]),
        ),
    },
    relative="dflash",
    claims=(
        Claim(
            "A refined block keeps more than DFlash's independent places.",
            "dflash",
            "accepted_length",
            figure="about 30 % more accepted tokens",
            place="speculators, issue 1051, Qwen3-8B",
            tokens=40,
            baseline_knobs={"gamma": 5},
            knobs={"gamma": 5},
        ),
    ),
    build=build,
)
