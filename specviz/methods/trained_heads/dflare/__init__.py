"""DFlare: DFlash, in which each draft layer reads its own mixture of the target's layers (2606.02091). Each
position is sampled from its own distribution, so token rejection is exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import note


def build(kit, gamma: int) -> Parts:
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .dflare_drafter import MixtureChain

    return Parts(MixtureChain(kit.head("dflare")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="dflare",
    title="DFlare",
    paper="DFlare 2026, arXiv 2606.02091",
    summary="DFlash's block, where each draft layer chooses for itself which layers of the target it reads.",
    knobs=(
        Knob(
            "gamma",
            3,
            1,
            15,
            "tokens drafted a round, as far as the block was trained; published blocks have 16",
        ),
    ),
    needs=frozenset({"head:dflare", "tap:layer", "embed", "head"}),
    look="The table of mixtures: which of the target's layers each draft layer listens to.",
    wins="Wherever DFlash does, and with more draft layers, which DFlash's single projection feeds all alike.",
    loses="With two draft layers and three layers to read there is little to choose.",
    differs="As in the authors' code, whose names of weights are kept. Trained from DFlash's weights: the attention of each layer and the "
    "table, while the feed-forward blocks stay DFlash's and are shared. The weight of far positions does not grow in training.",
    compared="code",
    aliases=("dflare",),
    trains=(
        Trained(
            "dflare",
            "A block drafter whose layers each read their own mixture of the target's layers.",
            f"{__name__}.dflare_network",
            after="dflash",
            one_pass=True,
        ),
    ),
    notes={
        "mixture": note(
            "mixture",
            "Which of the target's layers each draft layer reads (DFlare).",
            layers=("numbers of the target's layers, from 0", [1, 14, 26]),
            shares=(
                "share of each in what a draft layer reads, one list for each draft layer",
                [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]],
            ),
        )
    },
    relative="dflash",
    claims=(
        Claim(
            "A learned mixture of the target's layers keeps more than fixed ones.",
            "dflash",
            "accepted_length",
            figure="11 to 15 % longer accepted",
            place="abstract of 2606.02091",
            tokens=40,
            baseline_knobs={"gamma": 5},
            knobs={"gamma": 5},
        ),
    ),
    build=build,
)
