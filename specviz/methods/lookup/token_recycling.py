"""Token Recycling: each scored position has a few likely next tokens that are normally discarded. A table
token -> its eight latest successors fills the next draft tree, without a draft model (Luo et al.
2408.08696)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, nodes: int, depth: int, start: str) -> Parts:
    from ...drafters.lookup.token_recycling import TokenRecycling
    from ...indexes.earlier_answers import memory_of
    from ...policies import Fixed
    from ...trees import RECYCLING, sparse_tree
    from ...verifiers import TokenRejection

    shape = RECYCLING if nodes == len(RECYCLING) else sparse_tree(8, depth, nodes)
    drafter = TokenRecycling(shape, warm=start != "empty", memory=memory_of(kit) if start == "hot" else None)
    return Parts(drafter, Fixed(depth, 8, nodes), TokenRejection())


METHOD = Method(
    key="token_recycling",
    title="Token Recycling",
    paper="Luo et al. 2024, arXiv 2408.08696",
    summary="Remembers, for every token, which tokens the target thought likely after it, and drafts a tree from that memory.",
    knobs=(
        Knob("nodes", 5, 1, 80, "nodes of the tree; 80 is the paper's template, fewer suit a CPU"),
        Knob("depth", 3, 1, 6, "most tokens ahead"),
        Knob(
            "start",
            "hot",
            choices=("hot", "prompt", "empty"),
            help="hot: the table of earlier answers goes on, with the word pairs of this prompt; prompt: those alone",
        ),
    ),
    needs=frozenset({"tree"}),
    look="The table of successors beside the tree: entries just updated are marked, accepted and refused tokens teach it alike.",
    wins="On a GPU, where a pass of 80 tokens costs little more than one, on any kind of text.",
    loses="On a CPU the paper's 80 nodes cost more than they bring; the default here is five.",
    differs="As published; token pairs of the prompt are recorded, too.",
    compared="code",
    published={"start": "hot", "nodes": 80, "depth": 6},
    claims=(
        Claim(
            "Candidates of earlier passes draft more than copies.",
            "prompt_lookup",
            "accepted_length",
            figure="2.73 tokens a pass, prompt lookup 1.75",
            place="Spec-Bench's leaderboard, Vicuna-7B, greedy",
            tokens=40,
        ),
    ),
    build=build,
)
