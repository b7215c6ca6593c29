"""SuffixDecoding over EAGLE: the EAGLE head drafts unless the last tokens match a long suffix of this text
or an earlier answer (the hybrid of Oliaro et al. 2411.04975)."""

from __future__ import annotations

from ...core import Budget, Knob, Method, Parts
from ...core.claim import Claim


def build(
    kit, match: int, copied: int, factor: float, tree: str, depth: int, nodes: int, width: int, gain: float
) -> Parts:
    from ...drafters.combined.fusion import LookupOrDraft
    from ...drafters.heads.features import FeatureDrafter
    from ...drafters.lookup.counted_suffixes import CountedSuffixes
    from ...drafters.model.chain import DraftShape
    from ...drafters.model.confidence_trees import ConfidentTree
    from ...indexes.earlier_answers import memory_of
    from ...policies import Fixed
    from ...trees import sparse_tree
    from ...verifiers import TokenRejection

    memory = memory_of(kit)
    suffixes = CountedSuffixes(memory, capacity=memory.capacity, factor=factor)
    shape = sparse_tree(width, depth, nodes)
    head = FeatureDrafter(
        kit.head("eagle"),
        lambda model: DraftShape(model, shape) if tree == "EAGLE" else ConfidentTree(model, width, gain),
    )
    drafter = LookupOrDraft(suffixes, head, match, Budget(depth, width, nodes))
    return Parts(drafter, Fixed(max(copied, depth), max(8, width), max(copied, nodes)), TokenRejection())


METHOD = Method(
    key="suffix_or_eagle",
    title="Suffixes over EAGLE",
    paper="Oliaro et al. 2024, arXiv 2411.04975",
    summary="Copies wherever the text repeats itself for long, and lets EAGLE's head draft everywhere else.",
    knobs=(
        Knob(
            "match",
            5,
            1,
            64,
            "tokens of the end that must have stood before, here or in an earlier answer, to override the head",
        ),
        Knob("copied", 32, 1, 64, "most tokens drafted from a match"),
        Knob("factor", 4.0, 0.25, 8.0, "tokens drafted for each token of the match"),
        Knob(
            "tree",
            "EAGLE-2",
            choices=("EAGLE-2", "EAGLE"),
            help="a tree that grows where the head is sure, or a fixed one",
        ),
        Knob("depth", 4, 1, 8, "levels of the head's tree"),
        Knob("nodes", 6, 1, 60, "nodes of the head's tree; the papers' 26 and 60 suit a GPU"),
        Knob("width", 2, 1, 10, "most children of a node of the head's tree"),
        Knob(
            "gain",
            0.2,
            0.0,
            2.0,
            "a level of EAGLE-2's tree is grown while the one before it added more than this to the "
            "expected accepted length (on a GPU always, because asking synchronises); 0, as published: while a node of it could be kept",
        ),
    ),
    needs=frozenset({"head:eagle", "tap:final", "embed", "head", "tree"}),
    look="Who drafts changes from round to round: copies with arcs in repetitions, a tree of guesses everywhere else.",
    wins="Answers that mix known passages with new words: agents, edits, second answers to a similar question.",
    loses="A repetition that goes on differently pushes the head aside for a round; on fresh text it is the head alone.",
    differs="SuffixDecoding uses a copy if its expected length exceeds the other draft's; here the length of the match decides.",
    aliases=("suffix + EAGLE", "SAMD[EAGLE2]", "suffix hybrid", "arctic"),
    claims=(
        Claim(
            "On requests that repeat, suffixes over EAGLE keep more than EAGLE-2.",
            "eagle2",
            "accepted_length",
            figure="217 tokens/s, 148 with suffixes alone (HumanEval)",
            place="notes on 2411.04975, Llama-3.1-8B",
            repeated=True,
            tokens=40,
        ),
    ),
    build=build,
)
