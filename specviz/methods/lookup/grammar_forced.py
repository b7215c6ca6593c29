"""Grammar-forced tokens: tokens with a single valid choice under the grammar are the draft; another drafter
drafts the rest."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim


def build(kit, most: int, gamma: int, ngram: int, rest: str) -> Parts:
    from ...drafters.lookup.grammar_forced import GrammarForced
    from ...drafters.lookup.prompt_lookup import PromptLookup
    from ...drafters.model.chain import DraftChain
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    inner = PromptLookup(ngram) if rest == "prompt lookup" else DraftChain(kit.open("draft"))
    return Parts(GrammarForced(inner, most), Fixed(gamma), TokenRejection())


METHOD = Method(
    key="grammar_forced",
    title="Grammar-forced tokens",
    paper="Zheng et al. 2024, SGLang, arXiv 2312.07104",
    summary="When a schema or grammar leaves no choice, the next tokens are known: they are drafted for nothing and checked in one pass.",
    knobs=(
        Knob("most", 32, 1, 64, "most forced tokens drafted a round"),
        Knob("gamma", 10, 1, 32, "most tokens drafted where the grammar leaves a choice"),
        Knob("ngram", 3, 1, 8, "longest piece of text to look up"),
        Knob(
            "rest",
            "prompt lookup",
            help="drafter where the grammar leaves a choice",
            choices=("prompt lookup", "draft model"),
            needs=((2, "draft"),),
        ),
    ),
    look="Chains of forced tokens: keys, quotes and brackets of the schema, nearly always accepted whole.",
    wins="Structured output with long fixed parts: JSON with many required keys, forms, fixed phrases.",
    loses="Without a schema or grammar only the drafter of the rest is left; long free strings have nothing that is forced.",
    differs="SGLang writes forced text without running the model (jump-forward). Here the target verifies it, so another tokenization "
    "that the grammar allows stays possible, and the output is that of plain constrained decoding.",
    aliases=("jump-forward", "fast-forward tokens", "structured output"),
    relative="prompt_lookup",
    claims=(
        Claim(
            "What the grammar forces is a free draft.",
            "prompt_lookup",
            "accepted_length",
            given="schema",
            tokens=40,
        ),
    ),
    build=build,
)
