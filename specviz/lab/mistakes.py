"""Five classic mistakes, in words; specviz.lab.broken makes them."""
from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Mistake:
    """key; title: what was done; why: why it looks right and is not; watch: which certificate turns red."""

    key: str
    title: str
    why: str
    watch: str


MISTAKES = {m.key: m for m in (
    Mistake("argmax_as_drawn", "The draft's best token is sent, but judged as if it had been drawn",
            "The ratio rule p/q is right for a token drawn from q. A token that is simply the best one comes far more often than q "
            "says, so the output leans towards the draft's favourites. At temperature 0 nothing is wrong, which hides it.",
            "Greedy stays green; the distribution test turns red."),
    Mistake("no_residual", "After a refusal the correction is drawn from the target's distribution itself",
            "The refused token was already given its fair chance. Drawing from p again gives it a second one; the rest must come "
            "from what is left of p, norm((p - q)+).",
            "Greedy stays green; the distribution test turns red."),
    Mistake("first_unchecked", "The first draft token is kept without being checked",
            "It saves a row, and a good draft is mostly right. The text stays fluent, so nobody notices that the small model now "
            "writes one token of every round.",
            "Both turn red."),
    Mistake("cache_not_rolled_back", "Rejected tokens stay in the target's cache",
            "The next round reads them as if they were part of the text. Output stays plausible and drifts away from the target's.",
            "Greedy turns red as soon as a draft token is refused."),
    Mistake("bonus_from_draft", "When all drafts are accepted, the draft's distribution gives the bonus token too",
            "The bonus is the target's own next token, free with the pass that checked the drafts. Taking it from the draft saves "
            "nothing and lets an unchecked token in.",
            "The distribution test turns red; the greedy text too, once the draft is wrong at such a place."),
)}


def mistakes(name: Any = None) -> list[dict[str, str]]:
    """[{key, title, why, watch}]"""
    return [asdict(m) for m in MISTAKES.values()]
