"""Training rows with repeated spans, from which a model learns to copy.

Copying needs induction heads, which form late without such data (Olsson et al., 2209.11895).
"""

import random
from collections.abc import Callable


def random_span(rng: random.Random, size: int, vocab_size: int) -> list[int]:
    """Return ``size`` uniformly random token ids, without the first eight of the vocabulary, which are
    special tokens."""
    return [rng.randrange(8, vocab_size) for _ in range(size)]


def random_or_text_span(
    rng: random.Random, size: int, vocab_size: int, text: Callable[[], list[int]]
) -> list[int]:
    """Return ``size`` token ids: random ones, a shuffled piece of text, or a piece of text, chosen at
    random. text() returns more tokens than ``size``."""
    kind = rng.random()
    if kind < 0.4:
        return random_span(rng, size, vocab_size)
    words = text()
    at = rng.randrange(len(words) - size)
    return words[at : at + size] if kind < 0.7 else rng.sample(words, size)


def repeat_span(
    rng: random.Random, length: int, span: Callable[[int], list[int]]
) -> tuple[list[int], list[bool]]:
    """Return (ids, loss mask) of at least ``length`` tokens: ``span(size)`` repeated, often after random
    tokens. The first occurrence and the first token of each repetition have no loss, because they cannot be
    predicted."""
    words = span(rng.randint(4, length // 3))
    row = []
    counts = []
    repeats = False
    while len(row) < length:
        if rng.random() < 0.5:
            noise = span(rng.randint(1, 12))
            row += noise
            counts += [False] * len(noise)
        row += words
        counts += [False] + [repeats] * (len(words) - 1)
        repeats = True
    return row, counts
