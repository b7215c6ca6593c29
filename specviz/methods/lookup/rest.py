"""REST, retrieval-based speculative decoding: look up the last few tokens in a datastore and draft their
most frequent continuations as a tree (He et al. 2311.08252)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(kit, depth: int, nodes: int, longest: int, least: int, hits: int, caution: float) -> Parts:
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...drafters.lookup.datastore import StoreTree
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = with_cost_gate(StoreTree(kit.open_store("text"), longest, min(least, longest), hits), caution)
    return Parts(drafter, Fixed(depth, 8, nodes), TokenRejection())


METHOD = Method(
    key="rest",
    title="REST",
    paper="He et al. 2023, arXiv 2311.08252",
    summary="Looks the last few words up in a library of other texts, and drafts how those texts went on.",
    knobs=(
        Knob("depth", 10, 1, 16, "most tokens ahead"),
        Knob("nodes", 16, 1, 64, "nodes of the tree; the paper's 64 suit a GPU"),
        Knob("longest", 16, 1, 16, "longest end of the text that is looked up; shorter ones follow"),
        Knob("least", 2, 1, 16, "shortest end that may be looked up"),
        Knob("hits", 5000, 1, 20000, "most occurrences that are counted"),
        CAUTION,
    ),
    needs=frozenset({"store:text", "tree"}),
    look="Which store a drafted token was copied from, and how many occurrences agreed on it.",
    wins="Answers that resemble the library: code against a code store, chat against a chat store.",
    loses="A library of other matters finds two common words and drafts what follows them elsewhere: mostly refused, and soon kept back.",
    differs="The authors truncate their tree path by path and sample again after a mismatch, which is not exact above temperature 0. "
    "Here the most frequent prefixes form the tree, and each node is verified with one draw. The cost gate and the datastore are "
    "ours.",
    compared="code",
    published={"nodes": 64, "caution": 0.0},
    aliases=("REST",),
    claims=(
        Claim(
            "A library of texts drafts more than the prompt alone.",
            "prompt_lookup",
            "accepted_length",
            figure="1.82 tokens a pass, prompt lookup 1.75",
            place="Spec-Bench's leaderboard, Vicuna-7B, greedy",
            tasks=("chat", "code", "prose"),
            tokens=40,
        ),
    ),
    build=build,
)
