"""LogitSpec: the distribution that produced the last token also predicts the token after it; each candidate
is extended by its continuation in the context (Liu et al. 2507.01449)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, nodes: int, longest: int, reach: int) -> Parts:
    from ...drafters.lookup.logit_successors import LogitSpecDrafter
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(LogitSpecDrafter(longest, reach), Fixed(max(reach, 4), nodes, nodes), TokenRejection())


METHOD = Method(
    key="logitspec",
    title="LogitSpec",
    paper="Liu et al. 2025, arXiv 2507.01449",
    summary="Asks the distribution that wrote the last word for its other favourites, and tries each of them as the next word.",
    knobs=(
        Knob("nodes", 5, 1, 64, "nodes of the tree; the paper's 64 suit a GPU"),
        Knob("longest", 3, 1, 8, "longest end of the text that is looked up"),
        Knob("reach", 6, 1, 16, "most tokens copied straight from the text"),
    ),
    needs=frozenset({"tree"}),
    look="The branches: words that might have stood in the place of the last one and often come right after it.",
    wins="It always has something to try, where a lookup finds no match at all; with compute to spare that is a token for nothing.",
    loses="On a CPU each branch is a row to pay for, and second thoughts about the last word are seldom the next one.",
    differs="As the authors' code, but equal branches are merged.",
    published={"nodes": 64},
    claims=(
        Claim(
            "The last logits guess the token after next and so find more copies.",
            "prompt_lookup",
            "accepted_length",
            figure="up to 2.61 times faster, 3.28 tokens a pass",
            place="abstract of 2507.01449",
            tokens=40,
        ),
    ),
    build=build,
)
