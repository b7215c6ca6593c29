"""Rows in which a span is said again and again: what teaches a small model to copy (Olsson et al., 2209.11895)."""

import random
from collections.abc import Callable

EVENLY = 0.4  # spans of tokens drawn evenly; the rest are text, half of them scrambled


class Copies:
    """``text(dice, size)``: a list of more than ``size`` token ids; ``evenly``: share of spans that are no text at all."""

    def __init__(self, text: Callable[[random.Random, int], list[int]], vocabulary: int, evenly: float = EVENLY):
        self.text, self.vocabulary, self.evenly = text, vocabulary, evenly

    def row(self, dice: random.Random, length: int) -> tuple[list[int], list[bool]]:
        """(ids, which of them count), at least ``length`` of each. A span, often with noise before it: its first saying is free,
        and so is the first token of every other, as nothing tells that it is about to come."""
        span = self.span(dice, dice.randint(4, length // 3))
        row, counts, said = [], [], False
        while len(row) < length:
            if dice.random() < 0.5:
                noise = self.span(dice, dice.randint(1, 12))
                row += noise
                counts += [False] * len(noise)
            row += span
            counts += [False] + [said] * (len(span) - 1)
            said = True
        return row, counts

    def span(self, dice: random.Random, size: int) -> list[int]:
        """Tokens drawn evenly, a scrambled piece of text, or a piece of text."""
        kind = dice.random()
        if kind < self.evenly:
            return random_span(dice, size, self.vocabulary)
        text = self.text(dice, size)
        at = dice.randrange(len(text) - size)
        return text[at : at + size] if kind < (1 + self.evenly) / 2 else dice.sample(text, size)


def random_span(dice: random.Random, size: int, vocabulary: int) -> list[int]:
    return [dice.randrange(8, vocabulary) for _ in range(size)]
