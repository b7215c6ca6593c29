"""SuffixDecoding: suffixes of the text and of past answers are counted; the continuation with the highest
expected number of accepted tokens is the draft, and longer matches allow longer drafts (Oliaro et al.
2411.04975)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(
    kit, nodes: int, factor: float, least: float, shape: str, depth: int, room: int, caution: float
) -> Parts:
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...drafters.lookup.counted_suffixes import CountedSuffixes
    from ...indexes.earlier_answers import memory_of
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = CountedSuffixes(memory_of(kit), depth=depth, capacity=room, factor=factor, min_prob=least)
    return Parts(
        with_cost_gate(drafter, caution), Fixed(nodes, 8 if shape == "tree" else 1, nodes), TokenRejection()
    )


METHOD = Method(
    key="suffix_decoding",
    title="SuffixDecoding",
    paper="Oliaro et al. 2024, arXiv 2411.04975",
    summary="Counts every phrase of this text and of earlier answers, and drafts what most often followed, further after long matches.",
    knobs=(
        Knob("nodes", 32, 1, 64, "most tokens drafted a round; the gate lets through as many as pay"),
        Knob(
            "factor",
            4.0,
            0.25,
            8.0,
            "tokens drafted for each token of the match (the paper's 1, without a gate)",
        ),
        Knob("least", 0.1, 0.0, 1.0, "smallest share of the occurrences a draft may rest on"),
        Knob(
            "shape",
            "tree",
            choices=("tree", "path"),
            help="several continuations, or the most frequent one only",
        ),
        Knob("depth", 64, 8, 128, "longest phrase that is counted, match and continuation together"),
        Knob(
            "room",
            8000,
            1000,
            100000,
            "tokens of past answers remembered, twice over; older ones are forgotten",
        ),
        CAUTION,
    ),
    look="How far it dares to draft after a match, and whether the phrase came from this text or from an earlier answer.",
    wins="Agents, repeated questions, edits: the second answer to a similar question is drafted almost whole.",
    loses="The first answer to a new question: nothing has been counted yet, so there is little to draft.",
    differs="As published, with our cost gate and therefore longer drafts.",
    compared="code",
    published={"nodes": 16, "factor": 1.0, "caution": 0.0},
    aliases=("suffix", "arctic", "suffix_decoding"),
    claims=(
        Claim(
            "Requests that repeat earlier ones are drafted from their answers, in long pieces.",
            "token_recycling",
            "accepted_length",
            figure="1.9 times faster than Token Recycling",
            place="abstract of 2411.04975",
            repeated=True,
            tokens=40,
        ),
    ),
    build=build,
)
