"""Orthrus: a second, diffusion attention path through the frozen target drafts a block over the same KV
cache (Van Nguyen et al. 2605.12825). Each token is sampled from its position's distribution, so token
rejection is exact."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim


def build(kit, gamma: int) -> Parts:
    from ....drafters.heads.draft_path import DraftPathChain
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    return Parts(DraftPathChain(kit.head("orthrus")), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="orthrus",
    title="Orthrus",
    paper="Van Nguyen et al. 2026, arXiv 2605.12825",
    summary="The model gets a second pair of eyes: another attention over the same memory, which fills in a block of masked positions "
    "that the first one then checks.",
    knobs=(Knob("gamma", 4, 1, 16, "tokens drafted a round, as far as the block was trained"),),
    needs=frozenset({"head:orthrus", "draft_path"}),
    look="The masked positions see each other and all of the text, whose keys and values are those that the verification wrote.",
    wins="Long texts: there is one KV cache for drafting and verifying.",
    loses="Small models: a round takes two whole passes, and no token of it is certain but the last.",
    differs="The pass, its rows and its cache are the authors', and its arithmetic agrees with their code. Their second attention has "
    "matrices of its own; ours differs from the target's by matrices of rank 24, so their files do not load. Their blocks have "
    "one row more, whose prediction is dropped.",
    compared="code",
    published={"gamma": 15},
    aliases=("orthrus", "dual-view diffusion"),
    trains=(
        Trained(
            "orthrus",
            "A second attention path through the target, which fills in a block of mask tokens.",
            f"{__name__}.orthrus_network",
            one_pass=True,
        ),
    ),
    relative="uno",
    claims=(
        Claim(
            "A second path of the target drafts for it: its layers are read less often.",
            "autoregressive",
            "layers_read",
            figure="4.25 times plain decoding (1.7B)",
            place="the authors' code for 2605.12825",
            tokens=40,
        ),
    ),
    build=build,
)
