"""Sequoia: a dynamic program finds the tree shape with the most expected accepted tokens, and measured pass
times decide its size (Chen et al. 2402.12374). The acceptance rate per sibling rank is estimated while
decoding."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, nodes: int, depth: int, width: int) -> Parts:
    from ...drafters.model.sequoia import SequoiaTree
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        SequoiaTree(kit.open("draft"), width, depth, nodes), Fixed(depth, width, nodes), TokenRejection()
    )


METHOD = Method(
    key="sequoia",
    title="Sequoia",
    paper="Chen et al. 2024, arXiv 2402.12374",
    summary="Computes the best tree shape and size for this model, this draft and this machine, and updates it while decoding.",
    knobs=(
        Knob("nodes", 8, 1, 64, "largest tree considered; the paper goes up to 128 on a GPU"),
        Knob("depth", 6, 1, 10, "most levels considered"),
        Knob("width", 2, 1, 8, "most children of a node considered"),
    ),
    needs=frozenset({"draft", "tree"}),
    look="The shape settles after a few plans: small on a CPU, where every node costs time, large on a GPU.",
    wins="Over long answers, once the counts and the measured costs are in.",
    loses="The first rounds use a guess, and the clock has a say: two sampled runs with one seed may differ.",
    differs="The dynamic program is the authors'. They measure acceptance and times once before decoding; here both are measured while "
    "decoding, from initial estimates, so the first rounds explore. Trees have up to 64 nodes instead of 128.",
    compared="code",
    published={"nodes": 64, "depth": 10},
    by_time=True,
    claims=(
        Claim(
            "A tree shaped by measured acceptance keeps more than a chain of as many tokens.",
            "speculative",
            "accepted_length",
            figure="up to 4.04 times plain decoding on an A100",
            place="abstract of 2402.12374",
            knobs={"nodes": 8, "width": 4},
            baseline_knobs={"gamma": 8},
            temperature=1.0,
            tokens=40,
        ),
    ),
    build=build,
)
