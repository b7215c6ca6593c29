"""EAGLE-2: EAGLE's head with a confidence-dependent tree (Li et al. 2406.16858). Each level expands the
most probable nodes, and the most probable nodes of all levels are kept. Nodes are chosen, not sampled: each
is accepted with its target probability, which is exact at every temperature."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import GAIN, TOP_K


def build(kit, top_k: int, depth: int, nodes: int, gain: float, with_temperature: bool) -> Parts:
    from ...drafters.heads.features import FeatureDrafter
    from ...drafters.model.confidence_trees import ConfidentTree
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = FeatureDrafter(
        kit.head("eagle"), lambda model: ConfidentTree(model, top_k, gain, with_temperature)
    )
    return Parts(drafter, Fixed(depth, top_k, nodes), TokenRejection())


METHOD = Method(
    key="eagle2",
    title="EAGLE-2",
    paper="Li et al. 2024, arXiv 2406.16858",
    summary="EAGLE's head grows the tree where it is sure of itself, then keeps the most promising nodes of all levels.",
    knobs=(
        TOP_K,
        Knob("depth", 6, 1, 8, "levels grown at most, a pass of the head each"),
        Knob(
            "nodes",
            5,
            1,
            60,
            "nodes kept in the end; the paper takes 60 on a GPU; with the root five are six tokens, as many as a "
            "CPU without AVX-512 multiplies at once",
        ),
        GAIN,
        Knob(
            "with_temperature",
            False,
            help="score nodes at the run's temperature; the authors score them at 1, whatever it is",
        ),
    ),
    needs=frozenset({"head:eagle", "tap:final", "embed", "head", "tree"}),
    look="The shape changes every round: a thin line where the head is sure, a fan where it is not.",
    wins="With the same weights as EAGLE, wherever some positions are easy and others open.",
    loses="Most nodes that are grown are cut again: head and output matrix run for nodes that are dropped, at a CPU's cost.",
    differs="A level is added only for more than `gain` expected tokens, which is ours. The defaults are for a CPU with two cores.",
    compared="code",
    aliases=("eagle", "EAGLE", "EAGLE-2", "speculative-eagle-topk"),
    published={"top_k": 10, "depth": 6, "nodes": 59, "gain": 0.0},
    claims=(
        Claim(
            "A tree that follows the draft's confidence keeps more than EAGLE's fixed one.",
            "eagle",
            "accepted_length",
            figure="20 to 40 % faster than EAGLE",
            place="abstract of 2406.16858",
            knobs={"nodes": 8, "gain": 0.0, "top_k": 4},
            baseline_knobs={"nodes": 8, "depth": 5},
            tokens=40,
        ),
    ),
    build=build,
)
