"""ADED, adaptive draft-verification: a matrix of tri-grams that leans towards what is being written, and a tree search over it
that balances likely continuations against little tried ones (Liu et al. 2407.12021).
"""
from __future__ import annotations

from ...core import Knob, Method, Parts
from ...drafters.lookup.trigrams import TrigramSearch
from ...policies import Fixed
from ...verifiers import TokenRejection


def build(kit, depth: int, nodes: int, iterations: int, gain: float) -> Parts:
    return Parts(TrigramSearch(iterations, gain), Fixed(depth, 12, nodes), TokenRejection())


METHOD = Method(
    key="aded",
    title="ADED",
    paper="Liu et al. 2024, arXiv 2407.12021",
    summary="Knows which token follows which two, learns from every round, and searches that knowledge like a game for a good draft.",
    knobs=(
        Knob("depth", 4, 1, 8, "most tokens ahead"),
        Knob("nodes", 16, 1, 64, "places in the tree; the paper's 24 and more suit a GPU"),
        Knob("iterations", 150, 10, 500, "steps of the search, a round"),
        Knob("gain", 0.04, 0.0, 1.0, "what each of the latest tri-grams gains a round"),
    ),
    needs=frozenset({"tree"}),
    look="Visits against prior: where the search insisted on a continuation that was not the most frequent one.",
    wins="Long answers on one subject: the matrix learns their turns of phrase while they are written.",
    loses="Short answers, and a fast target: the search alone takes a few milliseconds a round.",
    differs="The search is the authors'. Its matrix begins with the prompt's tri-grams and not with a corpus, and the "
            "places visited most are kept, where their code cuts a list of paths.",
    compared="code",
    published={"nodes": 24},
    build=build,
)
