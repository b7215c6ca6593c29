"""Draft from a text that the answer is expected to resemble: "predicted outputs" of chat APIs, speculative
edits of editors. Their rule for realignment after a difference is not public; the rule here is this
project's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder
from .copying import copy_chain

ASSUMED = 10  # match length assumed before anything was compared


class Prediction(Drafter):
    """Drafter that copies a predicted text while the answer follows it. After a difference it continues
    after the longest suffix of the answer, of min_match to longest tokens, that occurs in the text: after
    its next occurrence, or else its last one.

    text: the predicted tokens; None: the prompt is the prediction. matched: number of answer tokens that
    matched before the proposal, plus ASSUMED until the first difference.
    """

    matched = 0

    def __init__(self, text: Sequence[int] | None = None, longest: int = 8, min_match: int = 2):
        self.text = text
        self.longest = longest
        self.min_match = min(min_match, longest)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.source = list(state.tokens[: state.start] if self.text is None else self.text)
        self.ends: dict[tuple[int, ...], list[int]] = {}
        for end in range(self.min_match, len(self.source)):
            for n in range(self.min_match, min(self.longest, end) + 1):
                self.ends.setdefault(tuple(self.source[end - n : end]), []).append(end)
        self.position, self.at, self.agreed = (
            0,
            state.start,
            ASSUMED,
        )  # source[position] is the prediction for position ``at``
        self.lost = False

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        position, n = self.follow(state.tokens, self.position, self.agreed, self.lost, self.at)[:2]
        if n and budget.gamma > 0:
            self.matched = n
            copied = copy_chain(builder, self.source, position, budget.gamma, state.stop, "predicted")
            state.note(
                "match",
                source="predicted",
                start=position - min(n, position),
                end=position,
                n=n,
                copied=copied,
            )
        return builder.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        self.position, self.agreed, self.lost = self.follow(
            state.tokens, self.position, self.agreed, self.lost, self.at
        )
        self.at = len(state.tokens)

    def follow(
        self, tokens: list[int], position: int, agreed: int, lost: bool, at: int
    ) -> tuple[int, int, bool]:
        """Continue the alignment from position ``at`` of ``tokens`` to their end. Return (position, agreed,
        lost): the position in the predicted text, the number of matching tokens before it (0 while
        unaligned), and whether the texts are unaligned."""
        for end in range(at, len(tokens)):
            if not lost and position < len(self.source) and self.source[position] == tokens[end]:
                position, agreed = position + 1, agreed + 1
            else:
                found, n = self.realign(tokens[: end + 1] if end + 1 < len(tokens) else tokens, position)
                position, agreed, lost = (found, n, False) if n else (position, 0, True)
        return position, agreed, lost

    def realign(self, tokens: list[int], near: int) -> tuple[int, int]:
        """Find the longest suffix of ``tokens`` that occurs in the predicted text. Return the position
        after it (the first one from ``near`` on, else the last one) and the suffix's length; (near, 0) if
        there is none."""
        for n in range(min(self.longest, len(tokens)), self.min_match - 1, -1):
            ends = self.ends.get(tuple(tokens[-n:]))
            if ends:
                return next((end for end in ends if end >= near), ends[-1]), n
        return near, 0


def predicted_text(kit: Any) -> tuple[int, ...] | None:
    """Return the tokens of the request's predicted output; None if there is none."""
    return getattr(kit, "predicted", ()) or None
