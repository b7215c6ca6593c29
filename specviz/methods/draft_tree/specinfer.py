"""SpecInfer: sequences of a small model share a token tree, verified in one target pass (Miao et al.
2305.09781). Siblings are sampled independently and verified one after the other, each rejection leaving a
residual distribution (multi-step speculative sampling); equal siblings are merged into one node. At
temperature 0 siblings are the top-k tokens. With several draft models, the union of their trees is used."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim

DRAFTS = ("draft", "wide", "deep")


def build(kit, width: int, split: int, depth: int, models: int) -> Parts:
    from ...drafters.combined.fusion import DraftUnion
    from ...drafters.model.chain import DraftShape
    from ...policies import Fixed
    from ...trees import full_tree, independent_children
    from ...verifiers import MultiStep

    shape = full_tree([width if level == split else 1 for level in range(1, depth + 1)])
    trees = [DraftShape(kit.open(role), shape, children=independent_children) for role in DRAFTS[:models]]
    return Parts(
        trees[0] if len(trees) == 1 else DraftUnion(*trees),
        Fixed(depth, width, len(trees) * len(shape)),
        MultiStep(),
    )


METHOD = Method(
    key="specinfer",
    title="SpecInfer",
    paper="Miao et al. 2023, arXiv 2305.09781",
    summary="The draft runs ahead in one line, then splits into several; the target checks all of them in one pass.",
    knobs=(
        Knob("width", 2, 1, 8, "lines after the split"),
        Knob("split", 3, 1, 8, "the level at which the line splits"),
        Knob("depth", 4, 1, 10, "most tokens ahead; the paper's tree is 1-1-3-1-1-1-1-1"),
        Knob(
            "models",
            1,
            1,
            3,
            "draft models that each draw a tree: the target's own draft, with it the wide one, then the deep one",
            needs=((2, "size:wide"), (3, "size:deep")),
        ),
    ),
    needs=frozenset({"draft", "tree"}),
    look="The split: different futures of the same beginning, of which at most one comes true.",
    wins="When the draft is sure of the first words and unsure of what follows.",
    loses="Independent draws repeat each other when the draft is sure; drawing without replacement wastes less.",
    differs="As published, but siblings are tested in the order they were sampled instead of a random one, and the draft models were not "
    "boosted for each other.",
    published={"width": 3, "split": 3, "depth": 8},
    claims=(
        Claim(
            "A tree of several continuations keeps more than one chain as deep.",
            "speculative",
            "accepted_length",
            figure="1.5 to 2.8 times other serving systems",
            place="abstract of 2305.09781",
            baseline_knobs={"gamma": 4},
            knobs={"width": 3, "split": 1, "depth": 4},
            tokens=40,
        ),
    ),
    build=build,
)
