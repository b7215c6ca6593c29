"""TR-Jacobi: Jacobi decoding with several guesses per position, arranged as a tree, plus one chain
retrieved from the context (Wang et al. 2406.17404, who also train the model on noise so that its guesses
are better; this works on any model)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, depth: int, nodes: int, wide: int, chain: int, match: int) -> Parts:
    from ...drafters.parallel.blocks import JacobiTree
    from ...policies import Fixed
    from ...trees import MEDUSA, sparse_tree
    from ...verifiers import TokenRejection

    shape = MEDUSA.within(depth, wide) if nodes == len(MEDUSA) else sparse_tree(wide, depth, nodes)
    drafter = JacobiTree(shape, wide, chain, match)
    return Parts(drafter, Fixed(max(depth, chain), wide, nodes + chain), TokenRejection())


METHOD = Method(
    key="tr_jacobi",
    title="TR-Jacobi",
    paper="Wang et al. 2024, arXiv 2406.17404",
    summary="Keeps the best few guesses for each place ahead, tries them as a tree, and a phrase copied from the text along with them.",
    knobs=(
        Knob("depth", 4, 1, 8, "positions guessed ahead (the paper's 5)"),
        Knob("nodes", 3, 1, 63, "nodes of the tree of guesses; 63 is the paper's template, fewer suit a CPU"),
        Knob("wide", 6, 1, 10, "most guesses for one place"),
        Knob("chain", 5, 1, 16, "most tokens copied from the text"),
        Knob("match", 3, 1, 8, "most tokens of the end that are looked up"),
    ),
    needs=frozenset({"tree"}),
    look="Two colours in one tree: guesses of the last pass, and the chain copied from the text.",
    wins="It has the better of two worlds: copies where the text repeats, second choices where it does not.",
    loses="Without the training on noise the guesses beyond the first place are seldom right.",
    differs="As published, without training on noise. The published tree template has four levels; the fifth level is the copied "
    "chain's.",
    compared="code",
    published={"depth": 5, "nodes": 63, "wide": 10},
    aliases=("Make Some Noise", "MSN"),
    claims=(
        Claim(
            "Retrieval and a tree keep more than Jacobi's chain.",
            "jacobi",
            "accepted_length",
            figure="2.3 to 2.7 times plain decoding, with trained noise",
            place="abstract of 2406.17404",
            baseline_knobs={"block": 5},
            tokens=40,
            knobs={"nodes": 5},
        ),
    ),
    build=build,
)
