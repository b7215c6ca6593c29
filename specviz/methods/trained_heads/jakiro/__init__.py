"""Jakiro: EAGLE-2 with two experts in the head; the last level of a draft comes from the experts' contrast,
without a forward pass (Huang et al. 2502.06282). Nodes are chosen: each is accepted with its target
probability, exact at every temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import note
from .. import GAIN


def build(kit, top_k: int, depth: int, nodes: int, gain: float) -> Parts:
    from ....drafters.model.confidence_trees import ConfidentTree
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .jakiro_drafter import JakiroTree

    drafter = JakiroTree(kit.head("jakiro"), lambda model: ConfidentTree(model, top_k, gain))
    return Parts(drafter, Fixed(depth, top_k, nodes), TokenRejection())


METHOD = Method(
    key="jakiro",
    title="Jakiro",
    paper="Huang et al. 2025, arXiv 2502.06282",
    summary="Two experts guess the next state together; set against each other they guess one further, which saves the draft "
    "its last pass.",
    knobs=(
        Knob(
            "top_k",
            2,
            1,
            10,
            "nodes of a level that go on, and children of each; the authors' scripts take 10 on a GPU",
        ),
        Knob(
            "depth",
            2,
            1,
            8,
            "levels of the tree, of which the last needs no pass; the authors' scripts take 6",
        ),
        Knob("nodes", 4, 1, 60, "nodes kept in the end; the authors' scripts keep 59 on a GPU"),
        GAIN,
    ),
    needs=frozenset({"head:jakiro", "tap:final", "embed", "head", "tree"}),
    look="Which expert spoke for each token, and how the last level fares, whose parents never went through the head.",
    wins="Like EAGLE-2 with a pass less a round, and with guesses that differ more from each other.",
    loses="The last level does not know which token stands above it, so it is right less often than a pass would make it.",
    differs="Head and levels are the authors'. Their code takes the contrast's rows in the order of the parents before; here each node "
    "uses its own parent's row. Jakiro*, whose experts are separate heads, is left out.",
    compared="code",
    published={"top_k": 10, "depth": 6, "nodes": 59, "gain": 0.0},
    aliases=("jakiro", "mixture of experts", "moe heads"),
    trains=(
        Trained(
            "jakiro",
            "EAGLE's layer with two experts, whose contrast predicts one token further.",
            f"{__name__}.jakiro_network",
        ),
    ),
    notes={
        "experts": note(
            "heads",
            "Share of each of the two experts, and which level was drafted without a forward pass (Jakiro).",
            shares=("the first expert's weight for each drafted position, the root's first", [0.8, 0.4, 0.6]),
            contrast=(
                "the level that was predicted from the difference of the experts' outputs, 0 for none",
                3,
            ),
        ),
    },
    claims=(
        Claim(
            "Experts for different candidates make a better head than EAGLE-2's.",
            "eagle2",
            "accepted_length",
            figure="faster than the methods before",
            place="abstract of 2502.06282",
            baseline_knobs={"depth": 4},
            tokens=40,
            why="its last training saw 0.1 million tokens (docs/trained.md), EAGLE's 1.0 million",
            knobs={"depth": 4, "nodes": 5},
        ),
    ),
    build=build,
)
