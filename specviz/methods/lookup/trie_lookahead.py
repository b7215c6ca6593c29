"""Lookahead with a trie: a trie of short token sequences of the prompt and all answers with their
frequencies; the most frequent continuations of the text are the draft tree (Zhao et al. 2312.12728)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, length: int, longest: int, nodes: int, wide: int) -> Parts:
    from ...drafters.lookup.trie_lookahead import TrieLookahead
    from ...indexes.earlier_answers import memory_of
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(TrieLookahead(memory_of(kit), length, longest), Fixed(length, wide, nodes), TokenRejection())


METHOD = Method(
    key="trie_lookahead",
    title="Trie lookahead",
    paper="Zhao et al. 2023, arXiv 2312.12728",
    summary="Keeps every short piece of the prompt and of earlier answers in a trie, and tries the most frequent ways on.",
    knobs=(
        Knob("length", 12, 2, 32, "tokens of a piece (branch length)"),
        Knob("longest", 4, 1, 16, "most last tokens that are looked up; shorter ends follow"),
        Knob("nodes", 5, 1, 64, "nodes of the tree (decoding length); the paper's 64 suit a GPU"),
        Knob("wide", 4, 1, 16, "most ways on from one place"),
    ),
    needs=frozenset({"tree"}),
    look="The second answer to a similar question: the trie knows its phrases, while those of the old prompt are gone.",
    wins="A service that answers similar questions all day, with a GPU with compute to spare.",
    loses="On fresh text common words lead everywhere: a tree nearly every round, and most of it is refused.",
    differs="The most frequent nodes of prompt and answers are chosen together; the paper weighs the two separately. Pieces are counted "
    "once they are complete, as published.",
    published={"nodes": 64},
    aliases=("NGRAM", "lookahead (Ant)", "PainlessInferenceAcceleration", "SGLang ngram"),
    claims=(
        Claim(
            "Branches of a trie draft several tokens a pass.",
            "autoregressive",
            "accepted_length",
            figure="2.66 to 6.26 times plain decoding",
            place="abstract of 2312.12728",
            tokens=40,
        ),
    ),
    build=build,
)
