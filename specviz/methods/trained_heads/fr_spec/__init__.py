"""FR-Spec: EAGLE-2 with a draft head that predicts only tokens that are frequent in a corpus (Zhao et al.
2502.14856). Most of a draft head's time is spent on the target's output matrix; here only the rows of these
tokens are used. The target verifies with the full vocabulary, so only the draft changes."""

from __future__ import annotations

from ....core import Knob, Method, Parts
from ....core.claim import Claim
from ....core.note_kind import IDS as NOTE_IDS
from ....core.note_kind import note
from .. import GAIN, TOP_K


def build(kit, vocabulary: int, top_k: int, depth: int, nodes: int, gain: float) -> Parts:
    from ....drafters.heads.features import FeatureDrafter
    from ....drafters.model.confidence_trees import ConfidentTree
    from ....policies import Fixed
    from ....verifiers import TokenRejection
    from .fr_spec_drafter import FrequentTokens, most_frequent

    head = kit.head("eagle")
    tokens = most_frequent(kit.open_store("text").array.tokens, kit.vocab, vocabulary)
    drafter = FrequentTokens(
        FeatureDrafter(head, lambda model: ConfidentTree(model, top_k, gain)), head, tokens
    )
    return Parts(drafter, Fixed(depth, top_k, nodes), TokenRejection())


METHOD = Method(
    key="fr_spec",
    title="FR-Spec",
    paper="Zhao et al. 2025, arXiv 2502.14856",
    summary="EAGLE-2 that guesses among the most frequent tokens alone: the head's pass no longer pays for the whole vocabulary.",
    knobs=(
        Knob(
            "vocabulary",
            2048,
            1,
            262144,
            "most frequent tokens that may be drafted; the paper takes a quarter of the target's",
        ),
        TOP_K,
        Knob("depth", 2, 1, 8, "levels grown, a pass of the head each; the paper takes 6"),
        Knob("nodes", 4, 1, 60, "nodes kept in the end; the paper takes 60 on a GPU"),
        GAIN,
    ),
    needs=frozenset({"head:eagle", "tap:final", "embed", "head", "tree", "store:text"}),
    look="Rare words: names and numbers that are not among the frequent tokens are never drafted, the target writes them itself.",
    wins="Large vocabularies over small heads: the output matrix is most of a head's pass, and three quarters of it are left out.",
    loses="Texts full of rare words, and targets whose vocabulary is small beside their layers.",
    differs="Token frequencies are counted in the project's datastore, the paper's in a corpus of a billion tokens.",
    published={"vocabulary": 32768, "top_k": 10, "depth": 6, "nodes": 60, "gain": 0.0},
    aliases=("fr_spec", "FR-Spec", "frequency-ranked", "speculative-token-map", "token map"),
    notes={
        "frequent": note(
            "heads",
            "The reduced vocabulary of the head, and generated tokens that it could not draft (FR-Spec).",
            spoken=("number of tokens that the head may draft", 2048),
            vocabulary=("of the target", 8192),
            beyond=("tokens of this round that are not among them", NOTE_IDS[:1]),
        ),
    },
    claims=(
        Claim(
            "A small vocabulary of frequent tokens keeps nine tenths of what the whole one keeps.",
            "eagle2",
            "accepted_length",
            figure="75 % less of the output matrix, 1.12 times EAGLE-2",
            place="abstract of 2502.14856",
            knobs={"depth": 4, "nodes": 5, "vocabulary": 12288},
            baseline_knobs={"depth": 4},
            factor=0.9,
            tokens=40,
        ),
    ),
    build=build,
)
