"""SuffixDecoding over a draft model: the draft model is used unless the last tokens match a long suffix of
this text or an earlier answer (the hybrid of Oliaro et al. 2411.04975)."""

from __future__ import annotations

from ...core import Budget, Knob, Method, Parts, StopBelowProbability
from ...core.claim import Claim


def build(kit, match: int, copied: int, factor: float, gamma: int, least: float) -> Parts:
    from ...drafters.combined.fusion import LookupOrDraft
    from ...drafters.lookup.counted_suffixes import CountedSuffixes
    from ...drafters.model.chain import DraftChain
    from ...indexes.earlier_answers import memory_of
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    memory = memory_of(kit)
    suffixes = CountedSuffixes(memory, capacity=memory.capacity, factor=factor)
    drafter = LookupOrDraft(
        suffixes, DraftChain(kit.open("draft")), match, Budget(gamma, stop=StopBelowProbability(least))
    )
    return Parts(drafter, Fixed(max(copied, gamma), 8, max(copied, gamma)), TokenRejection())


METHOD = Method(
    key="suffix_or_draft",
    title="Suffixes over a draft model",
    paper="Oliaro et al. 2024, arXiv 2411.04975",
    summary="Copies wherever the text repeats itself for long, and asks the small model everywhere else.",
    knobs=(
        Knob(
            "match",
            5,
            1,
            64,
            "tokens of the end that must have stood before, here or in an earlier answer, to override the draft model",
        ),
        Knob("copied", 32, 1, 64, "most tokens drafted from a match"),
        Knob("factor", 4.0, 0.25, 8.0, "tokens drafted for each token of the match"),
        Knob("gamma", 10, 1, 16, "tokens drafted by the small model where nothing is copied, at most"),
        Knob("least", 0.3, 0.0, 1.0, "chance below which a token ends the small model's draft; 0: none does"),
    ),
    needs=frozenset({"draft"}),
    look="Who drafts changes from round to round: copies with arcs in repetitions, the small model everywhere else.",
    wins="Answers that mix known passages with new words: agents, edits, second answers to a similar question.",
    loses="A repetition that goes on differently pushes the small model aside for a round; on fresh text it is the small model alone.",
    differs="SuffixDecoding uses a copy if its expected length exceeds the other draft's; here the length of the match decides. The "
    "draft model stops below a confidence threshold, which is ours.",
    aliases=("suffix + draft model", "suffix hybrid", "arctic"),
    claims=(
        Claim(
            "On requests that repeat, suffixes over a draft model keep more than the draft model.",
            "speculative",
            "accepted_length",
            figure="217 tokens/s, 148 with suffixes alone (HumanEval)",
            place="notes on 2411.04975, of the hybrid",
            repeated=True,
            tokens=40,
        ),
    ),
    build=build,
)
