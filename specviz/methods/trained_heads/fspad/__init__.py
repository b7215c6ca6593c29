"""FSPAD: EAGLE-2 with a head that gates the target's hidden state by the token, and outputs two states, one
to predict the next token and one to feed back (Gui et al. 2408.15562). Nodes are chosen: each is accepted
with its target probability, exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import note
from .. import GAIN, TOP_K


def build(kit, top_k: int, depth: int, nodes: int, gain: float) -> Parts:
    from ....drafters.model.confidence_trees import ConfidentTree
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .fspad_drafter import FspadTree

    drafter = FspadTree(kit.head("fspad"), lambda model: ConfidentTree(model, top_k, gain))
    return Parts(drafter, Fixed(depth, top_k, nodes), TokenRejection())


METHOD = Method(
    key="fspad",
    title="FSPAD",
    paper="Gui et al. 2024, arXiv 2408.15562",
    summary="EAGLE-2 whose head no longer has to choose: one of its states says the next token, another is handed on to the "
    "next step.",
    knobs=(
        TOP_K,
        Knob("depth", 2, 1, 8, "levels grown, a pass of the head each; the authors' scripts take 6"),
        Knob("nodes", 4, 1, 60, "nodes kept in the end; the authors' scripts keep 59 on a GPU"),
        GAIN,
    ),
    needs=frozenset({"head:fspad", "tap:final", "embed", "head", "tree"}),
    look="How unlike the two states are: where they are the same, EAGLE's one state would have done.",
    wins="Where EAGLE-2 does, with deeper drafts that hold: what is handed on is trained to be like the target's state and "
    "nothing else.",
    loses="Small targets: it is EAGLE's head with a second feed-forward, a pass of it for each level.",
    differs="Head, losses and tree are the authors'; no weights of theirs are published. Ours is also trained on its own "
    "guesses, as our EAGLE is.",
    compared="code",
    published={"top_k": 10, "depth": 6, "nodes": 59, "gain": 0.0},
    aliases=("fspad", "feature sampling", "partial alignment distillation"),
    trains=(
        Trained(
            "fspad",
            "EAGLE's layer with one state to predict from and another to feed back.",
            f"{__name__}.fspad_network",
        ),
    ),
    notes={
        "halves": note(
            "heads",
            "Similarity of the head's two output states: the one that predicts the token and the one that is fed back (FSPAD).",
            likeness=(
                "`[-1..1, ...]`, cosine similarity of both states for each drafted position, the root's first",
                [0.9, 0.7, 0.8],
            ),
        ),
    },
    claims=(
        Claim(
            "Sampled features and split outputs make a better head than EAGLE-2's.",
            "eagle2",
            "accepted_length",
            figure="better than EAGLE-2 on all tasks",
            place="abstract of 2408.15562",
            baseline_knobs={"depth": 4},
            tokens=40,
            knobs={"depth": 4, "nodes": 5},
            why="its last training saw 0.1 million tokens (docs/trained.md), EAGLE's 1.0 million",
        ),
    ),
    build=build,
)
