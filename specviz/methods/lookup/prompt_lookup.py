"""Prompt lookup: no draft model. Find an earlier occurrence of the last few tokens and draft what followed
it (Saxena 2023; "assisted generation by prompt lookup" in transformers)."""

from __future__ import annotations

from ...core import Knob, Method, Parts
from ...core.claim import Claim
from . import CAUTION


def build(kit, gamma: int, ngram: int, occurrence: str, caution: float) -> Parts:
    from ...drafters.lookup.cost_gate import with_cost_gate
    from ...drafters.lookup.prompt_lookup import PromptLookup
    from ...policies import Fixed
    from ...verifiers import TokenRejection

    return Parts(
        with_cost_gate(PromptLookup(ngram, occurrence == "latest"), caution), Fixed(gamma), TokenRejection()
    )


METHOD = Method(
    key="prompt_lookup",
    title="Prompt lookup",
    paper="Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding",
    summary="When the last words already stood somewhere in the text, guesses that they go on as they did there.",
    knobs=(
        Knob(
            "gamma",
            32,
            1,
            32,
            "most tokens to copy (usually 10); the gate lets through as many as pay, so long copies may go on",
        ),
        Knob("ngram", 3, 1, 8, "longest piece of text to look up; shorter ones are tried after it"),
        Knob(
            "occurrence",
            "first",
            choices=("first", "latest"),
            help="which of several equally long matches to copy from",
        ),
        CAUTION,
    ),
    look="The arc from the matched words to the place they were copied from.",
    wins="Editing, quoting, summaries, code: whenever the answer repeats the prompt. The draft costs nothing.",
    loses="On fresh text it finds nothing useful; each wrong copy would make the target's pass wider, so the gate keeps most of them back.",
    differs="As published, with our cost gate, which admits long copies where they pay.",
    compared="code",
    published={"gamma": 10, "caution": 0.0},
    aliases=("ngram", "ngram_gpu", "PLD", "NGram", "prompt_lookup_num_tokens"),
    claims=(
        Claim(
            "Copies from the prompt save passes where the answer quotes it.",
            "autoregressive",
            "accepted_length",
            figure="2.4 times plain decoding (summaries, context questions)",
            place="the author's page, Mistral-7B",
            tasks=("edit", "quote", "cite"),
            tokens=40,
        ),
    ),
    build=build,
)
