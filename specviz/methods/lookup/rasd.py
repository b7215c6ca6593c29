"""RASD: merge retrieved continuations and a draft model's tree; the draft model's first distribution
decides which retrieved branches are kept (Quan et al. 2503.03434)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, depth: int, nodes: int, width: int, found: int, reach: int, top: int) -> Parts:
    from ...drafters.lookup.counted_suffixes import CountedSuffixes
    from ...drafters.lookup.rasd import PrunedUnion
    from ...indexes.earlier_answers import memory_of
    from ...policies import Fixed
    from ...trees import sparse_tree
    from ...verifiers import TokenRejection

    memory = memory_of(kit)
    retrieval = CountedSuffixes(memory, depth=32, capacity=memory.capacity, factor=4.0)
    drafter = PrunedUnion(kit.open("draft"), sparse_tree(width, depth, nodes), True, retrieval, top, found)
    return Parts(drafter, Fixed(max(depth, reach), 8, max(nodes, found)), TokenRejection())


METHOD = Method(
    key="rasd",
    title="RASD",
    paper="Quan et al. 2025, arXiv 2503.03434",
    summary="Joins the small model's guesses with phrases found in the text, and drops those that the small model finds unlikely.",
    knobs=(
        Knob("depth", 3, 1, 10, "most tokens ahead for the draft model"),
        Knob("nodes", 4, 1, 64, "nodes of the draft model's tree; the paper's 60 suit a GPU"),
        Knob("width", 2, 1, 8, "most alternatives at one place of it"),
        Knob("found", 12, 1, 64, "most retrieved nodes"),
        Knob("reach", 12, 1, 32, "most tokens ahead for a retrieved branch"),
        Knob(
            "top",
            10,
            1,
            50,
            "a retrieved branch must begin with one of the draft model's so many best tokens",
        ),
    ),
    needs=frozenset({"draft", "tree"}),
    look="Three kinds of nodes: the model's, the retrieved ones, and those on which both agree.",
    wins="Documents with their own vocabulary: names and phrases come from the text, the words between from the model.",
    loses="Two drafts cost the time of both; where nothing repeats it is a draft tree with overhead.",
    differs="Merging and pruning are the paper's. Its numbers are not public; ours are from a re-implementation. Retrieval uses this "
    "text and earlier answers, by counts.",
    published={"depth": 5, "nodes": 60, "width": 8, "found": 32},
    claims=(
        Claim(
            "A retrieved tree joined to the draft's keeps more than the draft's chain.",
            "speculative",
            "accepted_length",
            figure="best of the methods compared",
            place="abstract of 2503.03434",
            baseline_knobs={"gamma": 3},
            tasks=("edit", "quote", "cite"),
            tokens=40,
        ),
    ),
    build=build,
)
