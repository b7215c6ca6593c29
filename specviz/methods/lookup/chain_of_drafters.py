"""A chain of drafters in fixed priority: ask the first one, and the next only where it drafts too little
(llama.cpp's ``--spec-type a,b``)."""

from __future__ import annotations

from typing import Any

from ...core import Budget, Drafter, Knob, Method, Parts, StopBelowProbability
from ...core.claim import Claim

LOOKUPS = ("prompt lookup", "suffixes", "n-gram pool")
MODELS = ("draft model", "Medusa", "EAGLE", "EAGLE-3")
NONE = "none"
LONGEST = 3  # tokens of prompt lookup's n-grams, unless longer matches are asked for
WIDTH = 2  # children of a node of an EAGLE tree
NODES = 6  # of it
GAIN = 0.2  # expected accepted tokens for which another level of it is grown


def drafter_of(
    kit: Any, name: str, key: int, gamma: int, least: float, caution: float, match: int = 0
) -> Drafter:
    """Return one of LOOKUPS or MODELS as a drafter. key: tokens of a key of the n-gram pool; gamma, least:
    length of a model's draft, and the probability below which the draft model stops; caution: of a lookup's
    cost gate; match: fewest tokens of context that its drafts continue."""
    from ...drafters.combined.fusion import BudgetLimited, LongMatches
    from ...drafters.heads.features import FeatureDrafter
    from ...drafters.heads.last_state import MedusaTree
    from ...drafters.heads.shapes import shape_for_heads
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...drafters.lookup.counted_suffixes import CountedSuffixes
    from ...drafters.lookup.ngram_map import NgramPool
    from ...drafters.lookup.prompt_lookup import PromptLookup
    from ...drafters.model.chain import DraftChain
    from ...drafters.model.confidence_trees import ConfidentTree
    from ...indexes.earlier_answers import memory_of

    def suffixes() -> Drafter:
        memory = memory_of(kit)
        return CountedSuffixes(memory, capacity=memory.capacity, factor=4.0, max_children=1)

    def medusa() -> Drafter:
        heads = kit.head("medusa")
        shape = shape_for_heads(heads.accuracy, 0, heads.nodes)
        return BudgetLimited(MedusaTree(heads, shape), Budget(gamma, 10, len(shape)))

    def eagle(kind: str) -> Drafter:
        head = FeatureDrafter(kit.head(kind), lambda model: ConfidentTree(model, WIDTH, GAIN))
        return BudgetLimited(head, Budget(gamma, WIDTH, NODES))

    lookups = {
        "prompt lookup": lambda: PromptLookup(max(LONGEST, match), False),
        "suffixes": suffixes,
        "n-gram pool": lambda: NgramPool(memory_of(kit), key, 1),
    }
    if name in lookups:
        lookup = lookups[name]()
        return with_cost_gate(LongMatches(lookup, match) if match else lookup, caution)
    models = {
        "draft model": lambda: BudgetLimited(
            DraftChain(kit.open("draft")), Budget(gamma, stop=StopBelowProbability(least))
        ),
        "Medusa": medusa,
        "EAGLE": lambda: eagle("eagle"),
        "EAGLE-3": lambda: eagle("eagle3"),
    }
    return models[name]()


def build(
    kit,
    first: str,
    then: str,
    last: str,
    match: int,
    enough: int,
    key: int,
    copied: int,
    gamma: int,
    least: float,
    caution: float,
) -> Parts:
    from ...drafters.combined.fusion import FirstSufficientDraft
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    names = [name for name in dict.fromkeys((first, then, last)) if name != NONE]  # each is asked once
    drafters = [
        # a short match of the last one keeps nobody else from drafting
        drafter_of(kit, name, key, gamma, least, caution, match if name != names[-1] else 0)
        for name in names
    ]
    budget = Fixed(max(copied, gamma), 10, 64)
    return Parts(FirstSufficientDraft(*drafters, enough=enough), budget, TokenRejection())


def _needs(before: int) -> tuple[tuple[int, str], ...]:
    """Return what the choices of MODELS need, after so many choices that need nothing."""
    of = {
        "draft model": ("draft",),
        "Medusa": ("head:medusa", "tap:final", "head", "tree"),
        "EAGLE": ("head:eagle", "embed"),
        "EAGLE-3": ("head:eagle3", "tap:layer"),
    }
    return tuple((before + 1 + MODELS.index(name), need) for name, needs in of.items() for need in needs)


METHOD = Method(
    key="chain_of_drafters",
    title="Chain of drafters",
    paper="llama.cpp, issue 22546 and option --spec-type",
    summary="Asks one drafter, and a second and a third one of your choice wherever those before find nothing.",
    knobs=(
        Knob(
            "first",
            "suffixes",
            choices=(*LOOKUPS, *MODELS),
            help="asked in every round; a model leaves one to the next drafter only if its draft is shorter than `enough`",
            needs=_needs(len(LOOKUPS)),
        ),
        Knob(
            "then",
            "n-gram pool",
            choices=(*LOOKUPS[::-1], *MODELS),
            help="asked where the first one drafts too little",
            needs=_needs(len(LOOKUPS)),
        ),
        Knob(
            "last",
            NONE,
            choices=(NONE, *LOOKUPS[::-1], *MODELS),
            help="asked where the first two draft too little",
            needs=_needs(1 + len(LOOKUPS)),
        ),
        Knob(
            "match", 1, 1, 32, "a lookup that continues fewer equal tokens leaves the round to the next one"
        ),
        Knob("enough", 1, 1, 8, "shorter drafts leave the round to the next one"),
        Knob("key", 6, 1, 32, "tokens of a key of the n-gram pool"),
        Knob("copied", 32, 1, 64, "most tokens copied a round"),
        Knob("gamma", 4, 1, 8, "most tokens that a model or a head drafts a round, one after another"),
        Knob("least", 0.3, 0.0, 1.0, "chance below which a token ends the draft model's draft; 0: none does"),
        Knob(
            "caution",
            1.0,
            0.0,
            4.0,
            "how much of its cost a copy must be expected to bring back; 0 copies whenever something is found",
            by_time=True,
        ),
    ),
    look="Which drafter answered, round by round: arcs for copies, probabilities or a tree where a later one was asked.",
    wins="Answers that mix quotations with new words. Each part may be weak where the other is strong.",
    loses="A wrong copy keeps the better drafter from being asked; on fresh text the chain is its second drafter alone.",
    differs="llama.cpp takes any list, and asks model-free ones first; here two or three in your order. The lookups' cost gate is ours.",
    relative="copy_or_draft",
    published={"caution": 0.0},
    aliases=("--spec-type", "spec-type list", "combined drafters", "ngram-mod + draft"),
    claims=(
        Claim(
            "A second drafter, asked where the first finds nothing, adds to it.",
            "suffix_decoding",
            "accepted_length",
            figure="15 and 24 % faster on rewrites of files",
            place="users' measurements, lmstudio-bug-tracker 2409",
            knobs={"then": "draft model"},
            tokens=40,
        ),
    ),
    build=build,
)
