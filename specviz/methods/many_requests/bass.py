"""BASS: all requests of a batch draft the same number of tokens and are verified in one ragged pass. The
draft length grows by two after a fully accepted draft and falls by at least a tenth otherwise (Qian et al.
2404.15778, algorithm 1)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, first: int, up: int, most: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...loops.batched import batch_of_one
    from ...policies import BatchDraftLength
    from ...verifiers import TokenRejection

    return Parts(
        DraftChain(kit.open("draft")), BatchDraftLength(first, up, most), TokenRejection(), batch_of_one
    )


METHOD = Method(
    key="bass",
    title="BASS (batched speculation)",
    paper="Qian et al. 2024, arXiv 2404.15778",
    summary="Speculates for several requests in one pass, each accepting as many tokens as it may; one draft length for all "
    "follows the luckiest of them.",
    knobs=(
        Knob("first", 7, 1, 16, "draft length of the first round"),
        Knob("up", 2, 0, 8, "tokens more after a draft that was accepted whole"),
        Knob("most", 32, 1, 32, "longest draft"),
    ),
    needs=frozenset({"draft"}),
    look="The length climbs while any request of the batch has its whole draft accepted. Alone it follows that one request.",
    wins="With a few requests at a time, each of which wants its answer soon.",
    loses="When one easy request keeps drafts long for all the others.",
    differs="The rule for the draft length is the paper's, with the first length, step and limit of its algorithm. Requests of different "
    "lengths are packed; the paper's kernels pad or split them.",
    aliases=("batched speculation",),
    claims=(
        Claim(
            "Drafting for a batch, a pass serves more than one token of each request.",
            "autoregressive",
            "accepted_length",
            figure="2.15 times plain decoding, 8 requests",
            place="abstract of 2404.15778",
            requests=4,
            tokens=40,
        ),
    ),
    build=build,
)
