"""Rows that say a span again: what a model has to meet to learn to copy.

Copying needs induction heads, which form late unless they are asked for (Olsson et al., 2209.11895).
"""

import random
from collections.abc import Callable


def random_span(rng: random.Random, size: int, vocabulary: int) -> list[int]:
    """Tokens drawn evenly; the first eight of the vocabulary are special and stay out."""
    return [rng.randrange(8, vocabulary) for _ in range(size)]


def of_text(rng: random.Random, size: int, vocabulary: int, text: Callable[[], list[int]]) -> list[int]:
    """`size` tokens drawn evenly, a scrambled piece of text, or a piece of text; `text()` has more tokens than that."""
    kind = rng.random()
    if kind < 0.4:
        return random_span(rng, size, vocabulary)
    words = text()
    at = rng.randrange(len(words) - size)
    return words[at : at + size] if kind < 0.7 else rng.sample(words, size)


def repeated(rng: random.Random, length: int, span: Callable[[int], list[int]]) -> tuple[list[int], list[bool]]:
    """Return
    (ids, which of them carry loss), at least `length` of them: `span(size)` said again and again, often with noise before it.
    The first saying is free, and so is the first token of every other: nothing tells that it is about to come."""
    words = span(rng.randint(4, length // 3))
    row, counts, repeats = [], [], False
    while len(row) < length:
        if rng.random() < 0.5:
            noise = span(rng.randint(1, 12))
            row += noise
            counts += [False] * len(noise)
        row += words
        counts += [False] + [repeats] * (len(words) - 1)
        repeats = True
    return row, counts
