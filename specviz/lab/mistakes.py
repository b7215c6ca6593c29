"""Descriptions of six classic mistakes in speculative decoding; specviz.lab.broken_methods implements
them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Mistake:
    """A deliberate mistake. title: what is wrong; why: why it looks right and is wrong; watch: which
    certificate fails."""

    key: str
    title: str
    why: str
    watch: str


MISTAKES = {
    m.key: m
    for m in (
        Mistake(
            "argmax_as_drawn",
            "The draft's top-1 token is proposed but verified as if it had been sampled",
            "The ratio rule p/q is valid for a token sampled from q. The top-1 token comes far more often than q says, so the "
            "output is biased towards the draft's top-1 tokens. At temperature 0 nothing is wrong, which hides the bug.",
            "Greedy stays green; the distribution test turns red.",
        ),
        Mistake(
            "no_residual",
            "After a rejection the correction is sampled from the target's distribution itself",
            "The rejected token already had its probability of acceptance. Sampling from p again gives it a second one; the "
            "correction must come from the residual distribution norm((p - q)+).",
            "Greedy stays green; the distribution test turns red.",
        ),
        Mistake(
            "first_unchecked",
            "The first draft token is accepted without verification",
            "It saves a position, and a good draft is mostly right. The text stays fluent, so it is easy to miss that the draft "
            "model now writes one token of every round.",
            "Both turn red.",
        ),
        Mistake(
            "cache_not_rolled_back",
            "Rejected tokens stay in the target's cache",
            "The next round attends to them as if they were part of the text. The output stays plausible but is not the target's.",
            "Greedy turns red as soon as a draft token is rejected.",
        ),
        Mistake(
            "rank_by_drawn_token",
            "Draft tokens are chosen for verification by the probability of the token that was drawn",
            "It seems natural to verify the tokens that the draft finds most probable. But a token that is drawn and then not "
            "verified has had its chance: what remains favours the draft's probable tokens. The choice must be made by what is known "
            "before the draw, such as the probability of the draft's top-1 token. At temperature 0 both are the same.",
            "Greedy stays green; the distribution test turns red.",
        ),
        Mistake(
            "bonus_from_draft",
            "When all drafts are accepted, the draft's distribution gives the bonus token too",
            "The bonus is the target's own next token, free with the pass that checked the drafts. Taking it from the draft saves "
            "nothing and lets an unchecked token in.",
            "The distribution test turns red; the greedy text too, once the draft is wrong at such a place.",
        ),
    )
}


def mistakes(name: Any = None) -> list[dict[str, str]]:
    """Return [{key, title, why, watch}], one per mistake."""
    return [asdict(m) for m in MISTAKES.values()]
