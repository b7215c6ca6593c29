"""Draft models with another vocabulary than the target's: find that of a target in models.yaml, and map
between the two tokenizers.

An entry has ``role: other_draft`` and ``for: <target>``. Its weights load like any model's; this module
adds both tokenizers as bytes, and the bridge between them, built once per pair."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ..drafters.vocabulary.bridge import Bridge
from .registry import Register, ZooError
from .text import TokenBytes
from .tokenizer import open_tokenizer

ROLE = "other_draft"


def folder_of(book: Register, name: str, folder: Path) -> Path | None:
    """Return the checkpoint folder of the target's draft model with another vocabulary; None if there is
    none. The target is given by its name or its folder."""
    for entry in book.made_for(name, folder):
        if entry.role != ROLE or entry.path and not (entry.path / "config.json").is_file():
            continue
        try:
            return entry.folder()
        except ZooError:  # a hub model that cannot be fetched now
            continue
    return None


class TokenizerBytes:
    """A tokenizer on bytes: calling it with a token id returns the token's bytes (for a control token, its
    name); ``encode`` is the inverse."""

    def __init__(self, tokenizer: Any, table: TokenBytes):
        self._tokenizer, self._table = tokenizer, table
        self.special, self.size = table.special, len(tokenizer)

    def __call__(self, token: int) -> bytes:
        return self._table(token)

    def encode(self, data: bytes) -> list[int]:
        """Return the token ids of bytes. Bytes that are not UTF-8 become single-byte tokens if the
        vocabulary has them; otherwise they are dropped."""
        pieces = re.split("([\udc80-\udcff]+)", data.decode("utf-8", "surrogateescape"))
        return [
            token
            for i, piece in enumerate(pieces)
            for token in (self._broken(piece) if i % 2 else self._encoded(piece))
        ]

    def _broken(self, piece: str) -> list[int]:
        return [
            self._single[byte] for byte in piece.encode("utf-8", "surrogateescape") if byte in self._single
        ]

    def _encoded(self, text: str) -> list[int]:
        if not text:
            return []
        ids = [
            int(i) for i in self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        ]
        if (
            ids and not text.startswith(" ") and self(ids[0]).startswith(b" ")
        ):  # some tokenizers put a space in front of every text
            bare = self(ids[0])[1:]
            ids[:1] = [self._bare[bare]] if bare in self._bare else ids[:1] if bare else []
        return ids

    @cached_property
    def _bare(self) -> dict[bytes, int]:
        return {self(token): token for token in range(self.size) if token not in self.special and self(token)}

    @cached_property
    def _single(self) -> dict[int, int]:
        return {data[0]: token for data, token in self._bare.items() if len(data) == 1}


@lru_cache(maxsize=4)
def bridge(target: Path, draft: Path, vocab: int, their_vocab: int) -> Bridge:
    """Return the bridge between the tokenizers of two checkpoint folders. vocab, their_vocab: the
    vocabulary sizes. Raises ZooError."""
    ours, theirs = (
        TokenizerBytes(words, TokenBytes(words)) for words in (open_tokenizer(target), open_tokenizer(draft))
    )
    return Bridge(ours, theirs, vocab, their_vocab)
