"""DFlash2 with both of its parts: convolutions along the block inside the drafter's layers, and the
candidate selector. Tokens are sampled in order from the selector's scores, so token rejection is exact at
every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.heads.masked_block import BlockChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(
        BlockChain(kit.head("dflash2_conv"), correction=kit.head("dflash2")), Fixed(gamma), TokenRejection()
    )


METHOD = Method(
    key="dflash2_conv",
    title="DFlash2",
    paper="DFlash2 2026, as in SGLang (pull request 35371)",
    summary="DFlash with short convolutions along the block, so that a position feels its left neighbour, and a selector among its top "
    "sixteen tokens.",
    knobs=(
        Knob(
            "gamma",
            3,
            1,
            15,
            "tokens drafted a round, as far as the block was trained; published blocks have 8 or 16",
        ),
    ),
    needs=frozenset({"head:dflash2_conv", "head:dflash2", "tap:layer", "embed", "head"}),
    look="Beside DFlash2 selector, which has the same selector over DFlash's plain layers.",
    wins="Wherever DFlash does: the convolutions cost a small matrix for each half of a layer.",
    loses="Small machines: four small matrices more in each layer than DFlash. The convolutions that ship were trained for minutes, and "
    "draft no more than the selector alone: 1.40 and 1.43 tokens per pass on six prompts.",
    differs="Read in public ports, whose names of weights are kept. The convolutions are trained here over DFlash's other weights and "
    "under the selector, both frozen; the published drafter is trained as a whole, with a selector of rank 256.",
    compared="code",
    trains=(
        Trained(
            "dflash2_conv",
            "Convolutions along the block in DFlash's layers.",
            f"{__name__}.dflash2_conv_network",
            after="dflash2",
            one_pass=True,
        ),
    ),
    relative="dflash",
    claims=(
        Claim(
            "Convolutions within the block keep more than DFlash.",
            "dflash",
            "accepted_length",
            tokens=40,
            baseline_knobs={"gamma": 5},
            knobs={"gamma": 5},
        ),
    ),
    build=build,
)
