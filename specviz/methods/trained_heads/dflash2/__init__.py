"""DFlash2's candidate selector on DFlash's blocks: the top tokens of each position are rescored given the
token before. Tokens are sampled in order from these scores, so token rejection is exact at every
temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.heads.masked_block import BlockChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(
        BlockChain(kit.head("dflash"), correction=kit.head("dflash2")), Fixed(gamma), TokenRejection()
    )


METHOD = Method(
    key="dflash2",
    title="DFlash2 selector",
    paper="DFlash2 2026, as in SGLang (pull request 35371)",
    summary="DFlash's block, where each position picks among its best sixteen tokens by the token before it.",
    knobs=(
        Knob(
            "gamma",
            3,
            1,
            15,
            "tokens drafted a round, as far as the block was trained; published blocks have 16",
        ),
    ),
    needs=frozenset({"head:dflash", "head:dflash2", "tap:layer", "embed", "head"}),
    look="Where the pick is not the position's own favourite: the token before it spoke for another.",
    wins="Wherever DFlash does: a position costs a few hundred multiplications, no matrix at all.",
    loses="Where the right token is not among the sixteen, or only a longer prefix than one token would tell.",
    differs="Read in an engine's public port: the selector alone, with the published names of weights. The convolutions inside DFlash2's "
    "layers are left out, and its tables have rank 16 instead of 256, over a frozen DFlash. Tokens are sampled, so temperatures "
    "above 0 are exact.",
    compared="code",
    aliases=("dflash2",),
    trains=(
        Trained(
            "dflash2",
            "A selector among the candidates of DFlash's positions.",
            f"{__name__}.dflash2_network",
            after="dflash",
        ),
    ),
    relative="dflash",
    claims=(
        Claim(
            "A selector of neighbours keeps more than DFlash's independent places.",
            "dflash",
            "accepted_length",
            tokens=40,
            baseline_knobs={"gamma": 5},
            knobs={"gamma": 5},
        ),
    ),
    build=build,
)
