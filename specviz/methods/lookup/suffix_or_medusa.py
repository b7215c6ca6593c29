"""SuffixDecoding over Medusa: the Medusa heads draft unless the last tokens match a long suffix of this
text or an earlier answer (the hybrid of Oliaro et al. 2411.04975)."""

from __future__ import annotations

from ...core import Budget, Knob, Method, Parts
from ...core.claim import Claim


def build(kit, match: int, copied: int, factor: float, nodes: int, depth: int) -> Parts:
    from ...drafters.combined.fusion import LookupOrDraft
    from ...drafters.heads.last_state import MedusaTree
    from ...drafters.heads.shapes import shape_for_heads
    from ...drafters.lookup.counted_suffixes import CountedSuffixes
    from ...indexes.earlier_answers import memory_of
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    memory = memory_of(kit)
    suffixes = CountedSuffixes(memory, capacity=memory.capacity, factor=factor)
    heads = kit.head("medusa")
    shape = shape_for_heads(heads.accuracy, nodes, heads.nodes)
    drafter = LookupOrDraft(suffixes, MedusaTree(heads, shape), match, Budget(depth, 10, len(shape)))
    return Parts(drafter, Fixed(max(copied, depth), 10, max(copied, len(shape))), TokenRejection())


METHOD = Method(
    key="suffix_or_medusa",
    title="Suffixes over Medusa",
    paper="Oliaro et al. 2024, arXiv 2411.04975",
    summary="Copies wherever the text repeats itself for long, and lets Medusa's heads guess everywhere else.",
    knobs=(
        Knob(
            "match",
            5,
            1,
            64,
            "tokens of the end that must have stood before, here or in an earlier answer, to override the heads",
        ),
        Knob("copied", 32, 1, 64, "most tokens drafted from a match"),
        Knob("factor", 4.0, 0.25, 8.0, "tokens drafted for each token of the match"),
        Knob("nodes", 0, 0, 64, "nodes of the heads' tree; 0: as many as the heads were calibrated for"),
        Knob("depth", 4, 1, 8, "most heads used, one a token ahead"),
    ),
    needs=frozenset({"head:medusa", "head", "tap:final", "tree"}),
    look="Who drafts changes from round to round: copies with arcs in repetitions, the heads' tree everywhere else.",
    wins="Answers that mix known passages with new words: agents, edits, second answers to a similar question.",
    loses="A repetition that goes on differently pushes the heads aside for a round; on fresh text it is the heads alone.",
    differs="SuffixDecoding uses a copy if its expected length exceeds the other draft's; here the length of the match decides.",
    aliases=("suffix + Medusa", "SAMD[Medusa]", "suffix hybrid", "arctic"),
    claims=(
        Claim(
            "On requests that repeat, suffixes over Medusa keep more than Medusa.",
            "medusa",
            "accepted_length",
            figure="217 tokens/s, 148 with suffixes alone (HumanEval)",
            place="notes on 2411.04975, of the hybrid",
            repeated=True,
            tokens=40,
        ),
    ),
    build=build,
)
