"""EAGLE-3: a head on hidden states of three target layers, trained on its own predictions, with EAGLE-2's
tree (Li et al. 2503.01840). Nodes are chosen, not sampled: each is accepted with its target probability,
exact at every temperature. A token outside the draft vocabulary is never proposed; it can only come from
the target."""

from __future__ import annotations

from ....core import Knob, Method, Parts, Trained
from ....core.claim import Claim
from .. import GAIN, TOP_K


def build(kit, top_k: int, depth: int, nodes: int, gain: float) -> Parts:
    from ....drafters.heads.features import FeatureDrafter
    from ....drafters.model.confidence_trees import ConfidentTree
    from ....policies import Fixed
    from ....verifiers import TokenRejection

    drafter = FeatureDrafter(kit.head("eagle3"), lambda model: ConfidentTree(model, top_k, gain))
    return Parts(drafter, Fixed(depth, top_k, nodes), TokenRejection())


METHOD = Method(
    key="eagle3",
    title="EAGLE-3",
    paper="Li et al. 2025, arXiv 2503.01840",
    summary="EAGLE's idea with early, middle and late states of the target joined, and a head that practised on its own guesses.",
    knobs=(
        TOP_K,
        Knob("depth", 6, 1, 8, "levels grown at most, a pass of the head each"),
        Knob("nodes", 5, 1, 60, "nodes kept in the end; the authors' scripts keep 59 on a GPU"),
        GAIN,
    ),
    needs=frozenset({"head:eagle3", "tap:layer", "embed", "head", "tree"}),
    look="How far down the tree stays right: the head was trained on its own guesses, so deep positions should lose less than EAGLE's.",
    wins="Long drafts: its third and fourth token are meant to be nearly as sure as its first.",
    loses="Rare words: what its smaller vocabulary lacks ends every draft.",
    differs="Head, vocabulary and tree are the paper's, and published files load. A level is added only for more than `gain` expected "
    "tokens, which is ours. The defaults are for a CPU with two cores.",
    published={"top_k": 10, "depth": 6, "nodes": 59, "gain": 0.0},
    aliases=("eagle3", "EAGLE3", "eagle-3"),
    trains=(
        Trained(
            "eagle3",
            "One layer over three hidden states of the target, trained on its own predictions.",
            "specviz.models.eagle3",
        ),
    ),
    claims=(
        Claim(
            "Several layers' states and training over its own steps make a better head than EAGLE's.",
            "eagle",
            "accepted_length",
            figure="about 1.4 times EAGLE-2's speed",
            place="abstract of 2503.01840",
            knobs={"nodes": 5},
            baseline_knobs={"depth": 3, "nodes": 5},
            tokens=40,
        ),
    ),
    build=build,
)
