"""Recursive speculative decoding with stochastic beam search: each level keeps W sequences sampled without
replacement by Gumbel top-k (RSD-S, Jeon et al. 2402.14160)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, width: int, depth: int) -> Parts:
    from ...drafters.model.multi_draft import StochasticBeam
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(StochasticBeam(kit.open("draft")), Fixed(depth, width, width * depth), TokenRejection())


METHOD = Method(
    key="rsd_s",
    title="RSD-S (stochastic beam search)",
    paper="Jeon et al. 2024, arXiv 2402.14160",
    summary="A tree as wide at the end as at the start: the most promising sequences, picked by a weighted lottery, go on.",
    knobs=(
        Knob("width", 2, 1, 12, "sequences kept at each level"),
        Knob("depth", 4, 1, 6, "levels"),
    ),
    needs=frozenset({"draft", "tree"}),
    look="Branches that die out where another sequence grew more likely; siblings are always different tokens.",
    wins="At temperature above 0 with the same number of nodes as a full tree: it reaches deeper.",
    loses="At temperature 0 it is plain beam search, and a chain is cheaper while the draft is right.",
    differs="As published; the paper's beams have up to twelve nodes.",
    compared="formula",
    published={"width": 12, "depth": 6},
    claims=(
        Claim(
            "Sequences drawn without replacement keep more than independent siblings.",
            "draft_tree",
            "accepted_length",
            figure="better at equal draft lengths",
            place="abstract of 2402.14160",
            temperature=1.0,
            knobs={"width": 4, "depth": 3},
            baseline_knobs={"children": "independent", "width": 3, "depth": 2, "nodes": 12},
            tokens=40,
        ),
    ),
    build=build,
)
