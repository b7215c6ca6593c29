"""ADED, adaptive draft-verification: Monte Carlo tree search over a tri-gram matrix that adapts to the
generated text (Liu et al. 2407.12021)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, depth: int, nodes: int, iterations: int, gain: float, start: str) -> Parts:
    from ...drafters.lookup.trigram_search import TrigramSearch
    from ...indexes.earlier_answers import memory_of
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    drafter = TrigramSearch(
        iterations, gain, memory=memory_of(kit), corpus=corpus(kit) if start == "store" else None
    )
    return Parts(drafter, Fixed(depth, 12, nodes), TokenRejection())


def corpus(kit):
    """Return the tri-gram counts of the text datastore; None if there is none for the target's vocabulary."""
    from ...indexes.trigrams import trigrams_of

    try:
        return trigrams_of(kit.open_store("text").array.tokens)
    except ValueError:
        return None


METHOD = Method(
    key="aded",
    title="ADED",
    paper="Liu et al. 2024, arXiv 2407.12021",
    summary="Knows which token follows which two, learns from every round, and searches that knowledge like a game for a good draft.",
    knobs=(
        Knob("depth", 4, 1, 8, "most tokens ahead"),
        Knob("nodes", 6, 1, 64, "nodes of the tree; the paper's 24 and more suit a GPU"),
        Knob("iterations", 150, 10, 500, "steps of the search, a round"),
        Knob("gain", 0.04, 0.0, 1.0, "what each of the latest tri-grams gains a round"),
        Knob(
            "start",
            "store",
            choices=("store", "prompt"),
            help="what the matrix begins with: a library of texts where there is one for this tokenizer, or the prompt alone",
        ),
    ),
    needs=frozenset({"tree"}),
    look="Visits against prior: where the search insisted on a continuation that was not the most frequent one.",
    wins="Long answers on one subject: the matrix learns their turns of phrase while they are written.",
    loses="Short answers, and a fast target: the search alone takes a few milliseconds a round.",
    differs="As published, on the project's own corpus. The trigrams of the prompt are counted, too, and the matrix lasts as long as the "
    "visit.",
    compared="code",
    published={"nodes": 24, "depth": 4},
    aliases=("Adaptix",),
    claims=(
        Claim(
            "A matrix of trigrams that adapts drafts more than exact copies of the prompt.",
            "prompt_lookup",
            "accepted_length",
            figure="up to 2.5 times plain decoding",
            place="full-paper notes on 2407.12021",
            tokens=40,
        ),
    ),
    build=build,
)
