"""Speculative speculative decoding (SSD, Saguaro): while a verification runs, the draft model predicts its
outcome and drafts what follows that outcome (2603.03251)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from ...core.note_kind import note


def build(kit, gamma: int, outcomes: int) -> Parts:
    from ...drafters.model.chain import DraftChain
    from ...loops.predicted_outcomes import PredictedOutcomes
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(DraftChain(kit.open("draft")), Fixed(gamma), TokenRejection(), PredictedOutcomes(outcomes))


METHOD = Method(
    key="ssd",
    title="SSD (drafting for predicted outcomes)",
    paper="Kumar et al. 2026, arXiv 2603.03251",
    summary="While the target verifies a draft, the draft model predicts how that ends, and drafts the next chain for each of the most "
    "likely outcomes. If one of them happens, the next round begins with its draft ready.",
    knobs=(
        Knob("gamma", 3, 1, 16, "draft length: tokens of each chain"),
        Knob(
            "outcomes", 2, 0, 16, "predicted outcomes that are drafted for; 0: ordinary speculative decoding"
        ),
    ),
    needs=frozenset({"draft"}),
    look="How often a draft was ready when a round began, and how many prepared drafts were thrown away.",
    wins="When the draft model has a device of its own: a round then costs the target's pass alone whenever its outcome was predicted.",
    loses="When both models share a core: each prepared draft is paid for, and most are dropped.",
    differs="Outcomes are ranked together over all positions by the draft model; Saguaro fixes their number per position, apart for a "
    "ready and a missing draft (tanishqkumar/ssd 6ed3022). Its sampling, which rescales the draft's top tokens so that the "
    "correction is easier to predict, is left out. Where no draft is ready, ours drafts as usual; theirs may return random tokens. "
    "One device; theirs has two.",
    compared="code",
    aliases=("Saguaro", "speculative speculative decoding"),
    notes={
        "outcomes": note(
            "outcomes",
            "Whether this round's draft was ready before it began, and what was prepared for the next one (SSD).",
            ready=("whether the draft was ready", True),
            dropped=("prepared drafts whose outcome did not happen", 1),
            prepared=("drafts prepared while the target verified this round", 2),
            drafting=("seconds until the draft was available", 0.0004),
        ),
    },
    relative="pearl",
    claims=(
        Claim(
            "Drafts prepared for predicted outcomes cost less modelled time than drafting after verification.",
            "speculative",
            "modelled_time",
            figure="up to 2 times speculative decoding",
            place="abstract of 2603.03251",
            baseline_knobs={"gamma": 3},
            knobs={"outcomes": 4},
            step=0.25,
            tokens=40,
        ),
    ),
    build=build,
)
