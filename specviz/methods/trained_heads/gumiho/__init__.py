"""Gumiho: EAGLE's layers draft the first two tokens one after the other, small MLPs all later ones at once
(Li et al. 2503.10135). Nodes are chosen: each is accepted with its target probability, exact at every
temperature."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from ....core.note_kind import note
from .. import GAIN


def build(kit, top_k: int, depth: int, nodes: int, gain: float) -> Parts:
    from ....drafters.model.confidence_trees import ConfidentTree
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .gumiho_drafter import GumihoTree

    head = kit.head("gumiho")
    return Parts(
        GumihoTree(head, lambda model: ConfidentTree(model, top_k, gain)),
        Fixed(min(depth, len(head)), top_k, nodes),
        TokenRejection(),
    )


METHOD = Method(
    key="gumiho",
    title="Gumiho",
    paper="Li et al. 2025, arXiv 2503.10135",
    summary="The first two draft tokens, on which all others depend, are made with care; the rest come at once from small networks.",
    knobs=(
        Knob(
            "top_k",
            2,
            1,
            10,
            "nodes of a level that go on, and children of each; the authors' scripts take 14 on a GPU",
        ),
        Knob(
            "depth",
            3,
            1,
            7,
            "levels of the tree, two of them serial, as far as MLPs were trained; the authors' scripts take 7",
        ),
        Knob("nodes", 4, 1, 60, "nodes kept in the end; the authors' scripts keep 63 on a GPU"),
        GAIN,
    ),
    needs=frozenset({"head:gumiho", "tap:final", "embed", "head", "tree"}),
    look="The levels after the second: they cost no pass of the head, however deep the tree is.",
    wins="Long drafts: early tokens decide how many are accepted, and late ones are nearly free.",
    loses="Where drafts are short: the first two levels are EAGLE's, and there are few others.",
    differs="As in the authors' code, without Full Tree Attention, which appends to a short path the tokens of a longer one: there "
    "the appended token was scored after another prefix, so the text is not always the target's. The MLPs read a node of the second "
    "level beside its parent; the authors' code pairs the two levels by rank. Ours has one layer, that "
    "of the EAGLE head, whose weights it shares, where theirs has two of its own.",
    compared="code",
    published={"depth": 7, "nodes": 60, "gain": 0.0, "top_k": 10},
    aliases=("gumiho", "serial and parallel heads"),
    trains=(
        Trained(
            "gumiho",
            "MLPs that predict all later tokens at once, after two positions by EAGLE's layers.",
            f"{__name__}.gumiho_network",
            after="eagle",
        ),
    ),
    notes={
        "serial_parallel": note(
            "heads",
            "Which levels of the draft were made one after another, and which at once (Gumiho).",
            passes=("passes of the head's layers", 2),
            serial=("levels that were made one after another", 2),
            levels=("nodes kept in each level", [2, 2, 1, 1]),
        ),
    },
    relative="eagle2",
    claims=(
        Claim(
            "Later places, drafted at once, need fewer passes of the drafter than EAGLE-2.",
            "eagle2",
            "draft_passes",
            figure="better than existing methods",
            place="abstract of 2503.10135",
            baseline_knobs={"depth": 4, "gain": 0.0},
            knobs={"depth": 4, "nodes": 5, "gain": 0.0},
            tokens=40,
        ),
    ),
    build=build,
)
