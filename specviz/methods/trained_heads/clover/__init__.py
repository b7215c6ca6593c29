"""Clover: Medusa's heads made sequential: each head updates the state with the token drafted before it
(Xiao et al. 2405.00263). Tree nodes are chosen, not sampled, so verification is exact at every
temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import IDS as NOTE_IDS
from ....core.note_kind import note


def build(kit, nodes: int, depth: int) -> Parts:
    from ....drafters.heads.shapes import shape_for_heads
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .clover_drafter import CloverTree

    heads = kit.head("clover")
    shape = shape_for_heads(heads.accuracy, nodes, heads.nodes)
    return Parts(CloverTree(heads, shape), Fixed(depth, 10, len(shape)), TokenRejection())


METHOD = Method(
    key="clover",
    title="Clover",
    paper="Xiao et al. 2024, arXiv 2405.00263",
    summary="Heads that pass one state along: each lets the last guessed token turn it a little before it guesses the next.",
    knobs=(
        Knob(
            "nodes",
            0,
            0,
            64,
            "nodes of the tree; 0: as many as the heads were calibrated for. The paper's timings have 4",
        ),
        Knob("depth", 2, 1, 8, "most heads used, one a token ahead; the paper has 3"),
    ),
    needs=frozenset({"head:clover", "head", "tap:final", "tree"}),
    look="How far each guessed token turns the state: where the gates are near 0 the head guesses as Medusa's would.",
    wins="Many requests at once: small trees whose few nodes hang together.",
    loses="One request, with compute to spare: a larger tree of cheaper heads does as well.",
    differs="The paper's figure gates the attention without a formula; the gate here is Clover-2's cosine, one per head. A norm follows "
    "the augmenting block. Verification is exact.",
    published={"nodes": 4},
    aliases=("Clover",),
    trains=(
        Trained(
            "clover",
            "Heads that pass a state on, each modified by the token drafted before it.",
            f"{__name__}.clover_network",
        ),
    ),
    notes={
        "regression": note(
            "ahead",
            "How much each drafted token changed the recurrent state that predicts the next one (Clover).",
            tokens=("the tokens read on the tree's first path, the root first", NOTE_IDS[:3]),
            moved=("norm of the state's change divided by the state's norm", [0.3, 0.1, 0.2]),
            gates=("`[[-1..1, ...], ...]`: of each attention head", [[0.5, -0.1], [0.2, 0.0], [0.4, 0.3]]),
        ),
    },
    claims=(
        Claim(
            "Heads that see the tokens before them keep more than independent ones.",
            "medusa",
            "accepted_length",
            figure="up to 57 % faster than Medusa",
            place="abstract of 2405.00263",
            knobs={"depth": 3, "nodes": 5},
            baseline_knobs={"nodes": 5, "depth": 3},
            tokens=40,
            why="its last training saw 0.2 million tokens (docs/trained.md), Medusa's 6.4 million",
        ),
    ),
    build=build,
)
