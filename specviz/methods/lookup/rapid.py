"""RAPID: for a long prompt the draft model reads only the retrieved, relevant chunks, and the target's
distribution, computed on the full prompt, is shifted towards the draft's (Chen et al. 2502.20330).

With transfer 0 the target is unchanged: exact speculative decoding with a draft model on a shortened context.
"""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim

READERS = {"draft model": "draft", "the target itself": "target"}


def build(
    kit, transfer: float, floor: float, gamma: int, sure: float, room: int, piece: int, reader: str
) -> Parts:
    from ...drafters.model.short_context import ShortContext
    from ...policies import Fixed
    from ...verifiers.rapid import RapidVerification

    drafter = ShortContext(kit.open(READERS[reader]), room, piece, sure)
    return Parts(drafter, Fixed(gamma), RapidVerification(transfer, floor, lambda: drafter.beliefs))


METHOD = Method(
    key="rapid",
    title="RAPID",
    paper="Chen et al. 2025, arXiv 2502.20330",
    summary="The small model drafts from the few pieces of a long prompt that matter; the target checks, and listens to it a little.",
    exactness="approximate",
    knobs=(
        Knob(
            "transfer",
            2.0,
            0.0,
            50.0,
            "how far the distribution is moved towards the draft (eta; the paper's 5 to 50 suit a strong drafter); 0 is exact",
        ),
        Knob(
            "floor",
            0.1,
            0.0,
            1.0,
            "only tokens that the draft gives this share of its best one's chance are moved (alpha)",
        ),
        Knob("gamma", 6, 1, 16, "most tokens drafted a round (the paper's 10)"),
        Knob(
            "sure", 0.4, 0.0, 1.0, "the draft ends after a token of which the drafter was less sure than this"
        ),
        Knob(
            "room",
            512,
            32,
            4096,
            "tokens of the prompt's pieces that the drafter reads (the paper's 4,000 to 8,000)",
        ),
        Knob("piece", 64, 8, 512, "tokens of a piece (the paper's 512)"),
        Knob(
            "reader",
            "draft model",
            choices=tuple(READERS),
            help="who reads the short context; the paper's is as large as the target",
        ),
    ),
    needs=frozenset({"draft"}),
    look="Which pieces of the prompt the drafter was given, and three bars a token: target, draft, and the distribution in between.",
    wins="Prompts of many thousand tokens, where reading all of them for every drafted token is what costs.",
    loses="Short prompts, which the drafter reads whole anyway; and with a weak drafter the transfer lowers the quality.",
    differs="The mixed distribution and the test are the authors'. Chunks of the prompt are retrieved by BM25 instead of an embedding, "
    "and the drafter is a small model.",
    compared="code",
    published={"gamma": 10, "transfer": 10.0, "piece": 512, "room": 4096, "reader": "draft model"},
    claims=(
        Claim(
            "Judged by a mixture with the draft's distribution, more of the draft is kept.",
            "speculative",
            "accepted_length",
            figure="more than 2 times faster on long contexts",
            place="abstract of 2502.20330",
            baseline_knobs={"gamma": 6},
            knobs={"sure": 0.0},
            tokens=40,
        ),
    ),
    build=build,
)
