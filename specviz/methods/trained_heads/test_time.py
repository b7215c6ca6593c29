"""Test-Time Speculation: a trained head is distilled from the target's own rows while it drafts, every few rounds
(2605.09329)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from ...core.note_kind import note
from . import GAIN, TOP_K


def build(kit, head: str, depth: int, nodes: int, top_k: int, gain: float, every: int, rate: float) -> Parts:
    from ...drafters.heads.online import LearningBlock, LearningFeatures
    from ...drafters.model.confidence_trees import ConfidentTree
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    if head == "dflash":
        return Parts(LearningBlock(kit.head("dflash"), every, rate), Fixed(depth), TokenRejection())
    drafter = LearningFeatures(kit.head(head), lambda model: ConfidentTree(model, top_k, gain), every, rate)
    return Parts(drafter, Fixed(depth, top_k, nodes), TokenRejection())


METHOD = Method(
    key="test_time",
    title="Test-Time Speculation",
    paper="Test-Time Speculation 2026, arXiv 2605.09329",
    summary="The draft head learns while it serves: the target's own distributions along the text are its lesson, every few rounds.",
    knobs=(
        Knob(
            "head",
            "eagle",
            choices=("eagle", "eagle3", "dflash"),
            help="which trained head drafts and learns",
            needs=((2, "head:eagle3"), (2, "tap:layer"), (3, "head:dflash")),
        ),
        Knob("depth", 5, 1, 8, "levels of the tree at most, or tokens of a block"),
        Knob("nodes", 5, 1, 60, "nodes kept of a tree"),
        TOP_K,
        GAIN,
        Knob("every", 8, 1, 64, "rounds for one step of learning"),
        Knob("rate", 1e-4, 1e-6, 1e-2, "how far a step goes; too far, and what the head knew is lost"),
    ),
    needs=frozenset({"head:eagle", "tap:final", "embed", "head", "tree"}),
    look="Agreement with the target at each step of learning, beside what the head as it came would agree at the same places.",
    wins="On long answers, far from what the head was trained on: there the acceptance of a fixed head falls with every hundred tokens.",
    loses="On short answers: a step costs time at once and pays later. Each run begins with the weights as they came.",
    differs="Read as an abstract: distillation on the target's rows every few rounds is the paper's, the rest is ours. AdamW, "
    "cross-entropy over three places ahead on the head's own states, 256 tokens of the text; the trained weights are dropped at the end "
    "of the run.",
    compared="notes",
    relative="eagle2",
    aliases=("TTS", "test-time speculation", "online EAGLE", "online DFlash"),
    notes={
        "distilled": note(
            "overlap",
            "A draft head that learns from the target's rows while it drafts (Test-Time Speculation).",
            updates=("training steps so far", 3),
            waiting=("rounds collected for the next step", 2),
            every=("rounds per training step", 8),
            rows_=("positions of this step", 14),
            before_=("mean overlap at these positions with the head as it came, sum of min(p, q)", 0.55),
            now_=("and with the head before this step", 0.7),
        ),
    },
    claims=(
        Claim(
            "A head that learns from the answer that it drafts keeps more of a long one.",
            "eagle2",
            "accepted_length",
            figure="41 % more accepted tokens on long outputs",
            place="abstract of 2605.09329",
            tokens=192,
        ),
    ),
    build=build,
)
