"""EMS-SD: requests of a batch draft and accept different numbers of tokens without padding in the pass or
the KV caches (Ni et al. 2405.07542). Here each request drafts until its draft model's confidence falls
below a threshold."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, most: int, least: float) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...loops.batched import batch_of_one
    from ...policies import RaggedDraftLengths
    from ...verifiers import TokenRejection

    return Parts(
        DraftChain(kit.open("draft")), RaggedDraftLengths(most, least), TokenRejection(), batch_of_one
    )


METHOD = Method(
    key="ems_sd",
    title="EMS-SD (no padding)",
    paper="Ni et al. 2024, arXiv 2405.07542",
    summary="Each request of a batch drafts as far as its own draft model is sure; drafts of different lengths are packed "
    "without padding.",
    knobs=(
        Knob("most", 8, 1, 16, "longest draft"),
        Knob(
            "least",
            0.4,
            0.0,
            1.0,
            "a request stops drafting after a token that the draft finds less likely than this",
        ),
    ),
    needs=frozenset({"draft"}),
    look="Tokens in the pass against those a padded batch would need: the difference is work that is not done.",
    wins="In large batches of uneven requests, where padding would be most of the pass.",
    loses="With one request there is nothing to pad; then it is a confidence threshold.",
    differs="The paper packs drafts and shifts each request's cache in one kernel; here each request has its own cache and attention. "
    "Drafts have different lengths because the draft model stops below a confidence threshold, which is ours.",
    claims=(
        Claim(
            "Without padding the batch's passes hold fewer tokens.",
            "speculative",
            "padded_rows",
            figure="2.85 times plain decoding, 16 requests",
            place="a survey's figure for 2405.07542",
            requests=4,
            tokens=40,
        ),
    ),
    build=build,
)
