"""Domino: a block drafted in one pass by DFlash, corrected position by position by a recurrent network over
the tokens chosen so far (2605.29707). Tokens are sampled in order from the corrected distribution, so token
rejection is exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.heads.masked_block import BlockChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(
        BlockChain(kit.head("dflash"), correction=kit.head("domino")), Fixed(gamma), TokenRejection()
    )


METHOD = Method(
    key="domino",
    title="Domino",
    paper="Huang et al. 2026, arXiv 2605.29707",
    summary="DFlash's block, then a tiny recurrent network that reads what was chosen so far and corrects the next position.",
    knobs=(
        Knob(
            "gamma",
            3,
            1,
            15,
            "tokens drafted a round, as far as the block was trained; the authors' blocks have 16",
        ),
    ),
    needs=frozenset({"head:dflash", "head:domino", "tap:layer", "embed", "head"}),
    look="Places where the corrected choice is not the block's own: most stand where two continuations got mixed.",
    wins="Wherever DFlash does; the price of a position is two small matrices, not a pass.",
    loses="Where DFlash's positions are already right, or wrong for want of depth: it only chooses among what the block offers.",
    differs="Read in engines' public ports, whose names of weights are kept. The head is trained here over a frozen DFlash; the authors "
    "train both, first the block's own loss, then the corrected one. Their config's shift_label is not read, and the first "
    "place is corrected unless the config's pure_draft_prefix_len says otherwise; theirs leaves it as "
    "the block drafted it. Tokens are sampled, so temperatures above 0 are exact.",
    compared="code",
    aliases=("domino",),
    trains=(
        Trained(
            "domino",
            "A recurrent correction of DFlash's blocks.",
            f"{__name__}.domino_network",
            after="dflash",
        ),
    ),
    relative="dflash",
    claims=(
        Claim(
            "Places that see the chosen prefix keep more than independent ones.",
            "dflash",
            "accepted_length",
            figure="1.90 to 2.29 tokens a pass",
            place="speculators, pull request 773",
            tokens=40,
            baseline_knobs={"gamma": 5},
            knobs={"gamma": 5},
        ),
    ),
    build=build,
)
