"""DySpec: the tree grows greedily, each node at the slot most likely to be reached and accepted (Xiong et
al. 2410.11744). A slot's value is known before its token is sampled, so tokens follow their
distributions."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, nodes: int, width: int, depth: int, grow: str, draft_temperature: float) -> Parts:
    from ...drafters.model.confidence_trees import GreedyTree
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = GreedyTree(kit.open("draft"), temperature=draft_temperature, layered=grow == "layers")
    return Parts(drafter, Fixed(depth, width, nodes), TokenRejection())


METHOD = Method(
    key="dyspec",
    title="DySpec",
    paper="Xiong et al. 2024, arXiv 2410.11744",
    summary="Spends each node of the draft tree where it has the best chance, one after the other.",
    knobs=(
        Knob("nodes", 5, 1, 64, "nodes of the tree; the paper takes 64 and more on a GPU"),
        Knob("width", 2, 1, 16, "most children of a node"),
        Knob("depth", 8, 1, 16, "most tokens ahead"),
        Knob(
            "grow",
            "one by one",
            choices=("one by one", "layers"),
            help="always where a token is worth most; or, a draft pass a level, wherever it is worth more than 1 / nodes",
        ),
        Knob(
            "draft_temperature",
            0.0,
            0.0,
            2.0,
            "temperature of the draft; 0: the run's, so that at 0 the top-k tokens are taken; the paper's is 0.6",
        ),
    ),
    needs=frozenset({"draft", "tree"}),
    look="A chain where the draft is sure, a bush where it is not, and everything between.",
    wins="With large trees and a draft that is cheap to run one step at a time.",
    loses="Growing node by node needs many small draft passes.",
    differs="Both ways to grow the tree are the paper's. The paper drafts at temperature 0.6 whatever the target's temperature; the "
    "default here is the run's temperature.",
    published={"nodes": 64, "width": 16, "depth": 16, "draft_temperature": 0.6},
    claims=(
        Claim(
            "A tree grown where the draft is sure keeps more than a fixed one of as many nodes.",
            "specinfer",
            "accepted_length",
            figure="higher acceptance than fixed trees; up to 9.1 times the throughput",
            place="abstract of 2410.11744",
            knobs={"nodes": 12, "width": 4, "depth": 8},
            baseline_knobs={"width": 3, "split": 1, "depth": 4},
        ),
    ),
    build=build,
)
