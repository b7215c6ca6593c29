"""OPT-Tree: grow the draft tree while a further level adds enough expected accepted tokens, then keep the
nodes with the highest path probability (Wang et al. 2406.17276)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, nodes: int, depth: int, gain: float, with_temperature: bool) -> Parts:
    from ...drafters.model.confidence_trees import ConfidentTree
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = ConfidentTree(kit.open("draft"), nodes, gain, with_temperature, check_gain_on_device=True)
    return Parts(drafter, Fixed(depth, nodes, nodes), TokenRejection())


METHOD = Method(
    key="opt_tree",
    title="OPT-Tree",
    paper="Wang et al. 2024, arXiv 2406.17276",
    summary="Each round builds the tree with the greatest expected number of accepted tokens, and stops when growing no longer pays.",
    knobs=(
        Knob("nodes", 6, 1, 64, "nodes kept, and most nodes of a level; the paper takes 50 on a GPU"),
        Knob("depth", 10, 1, 12, "most levels"),
        Knob("gain", 0.5, 0.0, 1.0, "accepted tokens a level must promise for the next one to be grown"),
        Knob(
            "with_temperature",
            False,
            help="score nodes at the run's temperature; the authors score them at 1, whatever it is",
        ),
    ),
    needs=frozenset({"draft", "tree"}),
    look="The depth of the tree from round to round: deep where the draft is sure, a single level where it is not.",
    wins="With a draft whose probabilities mean what they say.",
    loses="With an overconfident draft, which grows deep trees that fail at the root.",
    differs="As in the paper, where the newest level counts. The authors' program leaves it out of the sum and of the tree.",
    published={"nodes": 50},
    claims=(
        Claim(
            "A tree of the largest expected length keeps more than a chain of as many tokens.",
            "speculative",
            "accepted_length",
            figure="up to 3.2 times plain decoding",
            place="abstract of 2406.17276",
            knobs={"nodes": 8, "gain": 0.0},
            baseline_knobs={"gamma": 8},
            tokens=40,
        ),
    ),
    build=build,
)
