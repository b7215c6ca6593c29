"""A second vocabulary for toy nets: letters in another order, one pair that only the target has, one that
only the draft has."""

from __future__ import annotations

import copy

from specviz.drafters.vocabulary.bridge import Bridge
from specviz.targets.tiny import TinyNet


class Letters:
    """A tokenizer over pieces: the longest piece that fits comes first; what no piece spells is left out."""

    def __init__(self, pieces: list[bytes], special=()):
        self.pieces = pieces
        self.special = frozenset(special)
        self.size = len(pieces)
        self._by_length = sorted(
            (i for i in range(len(pieces)) if i not in self.special), key=lambda i: -len(pieces[i])
        )

    def __call__(self, token: int) -> bytes:
        return self.pieces[token] if token < self.size else b""

    def encode(self, data: bytes) -> list[int]:
        out, at = [], 0
        while at < len(data):
            token = next((i for i in self._by_length if data.startswith(self.pieces[i], at)), None)
            out += [] if token is None else [token]
            at += 1 if token is None else len(self.pieces[token])
        return out


def ours(vocab: int) -> Letters:
    letters = [bytes([97 + i]) for i in range(vocab)]
    return Letters(letters if vocab < 3 else [*letters[:-1], b"ab"])


def theirs(vocab: int) -> Letters:
    letters = [piece for piece in ours(vocab).pieces if len(piece) == 1]
    return Letters([*reversed(letters), b"ba"])


def other_net(small: TinyNet) -> TinyNet:
    """The small net with the other vocabulary's rows: a piece has the rows of the target's token for its
    last letter."""
    rows = [ours(small.vocab).pieces.index(piece[-1:]) for piece in theirs(small.vocab).pieces]
    net = copy.copy(small)
    net.vocab = len(rows)
    net.embedding = small.embedding[rows]
    net.output = small.output[rows]
    return net


def bridge(vocab: int) -> Bridge:
    words = theirs(vocab)
    return Bridge(ours(vocab), words, vocab, words.size)
