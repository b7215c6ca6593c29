"""A draft tree that follows the draft's confidence: expand the most likely nodes of each level, then keep
the best of all levels (the dynamic trees of EAGLE-2, Li et al. 2406.16858, here for any draft model).
"""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, beam: int, depth: int, nodes: int, gain: float, with_temperature: bool) -> Parts:
    from ...drafters.model.confidence_trees import ConfidentTree
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        ConfidentTree(kit.open("draft"), beam, gain, with_temperature),
        Fixed(depth, beam, nodes),
        TokenRejection(),
    )


METHOD = Method(
    key="confidence_tree",
    title="Confidence tree (EAGLE-2 style)",
    paper="Li et al. 2024, arXiv 2406.16858",
    summary="Where the draft is sure the tree grows long and thin, where it is not it grows wide.",
    knobs=(
        Knob(
            "beam", 2, 1, 10, "nodes of a level that go on, and children of each; EAGLE-2 takes 10 on a GPU"
        ),
        Knob("depth", 5, 1, 10, "levels grown; EAGLE-2 takes 6"),
        Knob("nodes", 5, 1, 64, "nodes kept in the end; EAGLE-2 takes 60 on a GPU"),
        Knob(
            "gain",
            0.2,
            0.0,
            2.0,
            "a level is grown while the one before it added more than this to the expected accepted "
            "length (on a GPU always, because asking synchronises); 0, as published: while a node of it could be kept",
        ),
        Knob(
            "with_temperature",
            False,
            help="score nodes at the run's temperature; the authors score them at 1, whatever it is",
        ),
    ),
    needs=frozenset({"draft", "tree"}),
    look="The shape changes every round: compare a sure place with an open one.",
    wins="When the draft's confidence tells right from wrong, which even small drafts often manage.",
    loses="Most nodes that are grown are cut again, which costs draft passes with many tokens.",
    differs="The tree is EAGLE-2's, but a separate draft model grows it instead of a head on the target's features.",
    published={"beam": 10, "depth": 6, "nodes": 59, "gain": 0.0},
    claims=(
        Claim(
            "A tree grown by confidence keeps more than a chain of as many tokens.",
            "speculative",
            "accepted_length",
            figure="20 to 40 % faster than EAGLE's fixed tree",
            place="abstract of 2406.16858",
            knobs={"nodes": 8, "gain": 0.0, "beam": 4, "depth": 8},
            baseline_knobs={"gamma": 8},
        ),
    ),
    build=build,
)
