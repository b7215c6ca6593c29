"""Map between the tokenizers of target and draft (Timor et al. 2502.05202).

Tokens are compared as bytes, so a leading space, part of a character or a control token is never confused
with another token. A tokenizer is anything with ``__call__(token) -> bytes`` (a control token's are its
name), ``special`` (the control tokens), ``size`` and ``encode(bytes) -> tokens``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...core import DraftTree, Scores, Target

WINDOW = 10  # last tokens that are re-encoded, because a new token may merge with them


class Bridge:
    """The mapping between the vocabularies of a target ("ours") and a draft model ("theirs").

    ours, theirs: the tokenizers; vocab, their_vocab: vocabulary sizes of the logits. to_theirs[t]: the
    draft token with the same bytes as target token t, -1 if there is none; shared [2, pairs]: (target
    token, draft token) for tokens in both vocabularies.
    """

    def __init__(self, ours: Any, theirs: Any, vocab: int, their_vocab: int):
        self.ours = ours
        self.theirs = theirs
        self.vocab = vocab
        self.their_vocab = their_vocab
        text = {
            self._key(theirs, token): token
            for token in range(min(theirs.size, their_vocab) - 1, -1, -1)
            if theirs(token)
        }
        self.to_theirs = [
            text.get(self._key(ours, t), -1) if t < ours.size and ours(t) else -1 for t in range(vocab)
        ]
        mine: dict[int, int] = {}
        for t, token in enumerate(self.to_theirs):
            mine.setdefault(token, t)
        mine.pop(-1, None)
        with torch.inference_mode(False):  # online training differentiates through these indices
            self.shared = torch.tensor([[*mine.values()], [*mine.keys()]])

    @staticmethod
    def _key(words: Any, token: int) -> tuple[bool, bytes]:
        return token in words.special, words(token)

    @property
    def overlap(self) -> float:
        """Share of the draft vocabulary that the target's vocabulary contains."""
        return self.shared.shape[1] / max(1, min(self.theirs.size, self.their_vocab))

    @cached_property
    def to_ours(self) -> dict[int, int]:
        """Draft token -> target token with the same bytes; without an entry if there is none."""
        return dict(zip(self.shared[1].tolist(), self.shared[0].tolist()))

    @cached_property
    def spelled(self) -> list[tuple[int, ...]]:
        """For each draft token, the target tokens that encode its bytes; empty for a control token that the
        target lacks."""

        def spell(token: int) -> tuple[int, ...]:
            if token in self.to_ours:
                return (self.to_ours[token],)
            nothing = token in self.theirs.special or token >= self.theirs.size
            return () if nothing else tuple(self.ours.encode(self.theirs(token)))

        return [spell(token) for token in range(self.their_vocab)]

    @cached_property
    def first(self) -> Tensor:
        """For each draft token, the first of the target tokens that encode it, -1 = none; [their_vocab]."""
        return torch.tensor([tokens[0] if tokens else -1 for tokens in self.spelled])

    @cached_property
    def joins(self) -> dict[int, tuple[Tensor, Tensor]]:
        """Target tokens that are the concatenation of two draft tokens and equal to no single one: {first
        draft token: (second draft tokens [n], target tokens [n])}."""
        found: dict[int, list[tuple[int, int]]] = {}
        for token, other in enumerate(self.to_theirs):
            text = (
                self.ours(token)
                if other < 0 and token < self.ours.size and token not in self.ours.special
                else b""
            )
            pair = self.theirs.encode(text) if len(text) > 1 else []
            if len(pair) == 2 and self.theirs(pair[0]) + self.theirs(pair[1]) == text:
                found.setdefault(pair[0], []).append((pair[1], token))
        both = {first: torch.tensor(pairs) for first, pairs in found.items()}
        return {first: (pairs[:, 0], pairs[:, 1]) for first, pairs in both.items()}

    def encode(self, tokens: Sequence[int]) -> list[int]:
        """Return the draft tokens of a text given as target tokens. Control tokens are mapped by name, or
        dropped if the draft model lacks them; the text between them is encoded as one string."""
        out, run = [], bytearray()
        for token in tokens:
            if token not in self.ours.special:
                run += self.ours(token)
                continue
            out += self.theirs.encode(bytes(run)) if run else []
            out += [self.to_theirs[token]] if self.to_theirs[token] >= 0 else []
            run.clear()
        return out + (self.theirs.encode(bytes(run)) if run else [])

    def alignments(self, ours: Sequence[int], theirs: Sequence[int]) -> list[tuple[int, int]]:
        """Return all pairs (i, j) for which the first i target tokens and the first j draft tokens decode
        to the same bytes."""
        ends = {}
        at = 0
        found = []
        for j, token in enumerate(theirs, 1):
            at += len(self.theirs(token))
            ends[at] = j
        at = 0
        for i, token in enumerate(ours, 1):
            at += len(self.ours(token)) if token not in self.ours.special or self.to_theirs[token] >= 0 else 0
            found += [(i, ends[at])] if at in ends else []
        return found

    def decode(self, before: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """Return the target tokens of drafted draft tokens, which follow the target tokens ``before``: both
        are encoded together, because tokens may merge across the border. An incomplete character at the end
        is dropped."""
        out, run = [], bytearray()
        context = self._text_before(before)
        for token in drafted:
            if token not in self.theirs.special:
                run += self.theirs(token)
                continue
            out += self._ours_of(context, bytes(run))
            name = self.theirs(token)
            out += [t for t in self.ours.special if self.ours(t) == name][:1]
            return out  # nothing follows a control token
        return out + self._ours_of(context, whole_characters(bytes(run)))

    def _text_before(self, before: Sequence[int]) -> bytes:
        tail: list[int] = []
        for token in reversed(before[-WINDOW:]):
            if token in self.ours.special:
                break
            tail.append(token)
        return b"".join(self.ours(token) for token in reversed(tail))

    def _ours_of(self, context: bytes, text: bytes) -> list[int]:
        if not text:
            return []
        tokens, length = self.ours.encode(context + text), 0
        for i in range(len(tokens) - 1, -1, -1):
            length += len(self.ours(tokens[i]))
            if length == len(text):
                return tokens[i:]
            if length > len(text):
                break  # a token spans the border
        return self.ours.encode(text)


class DraftTokenization:
    """The context re-encoded in draft tokens. When the text grows, only its end is encoded again."""

    def __init__(self, bridge: Bridge):
        self.bridge = bridge
        self._tokens: list[int] = []
        self._num_final, self._ids = 0, []  # number of finalised target tokens, their draft tokens

    def follow(self, tokens: Sequence[int]) -> list[int]:
        """Return the draft tokens of a text given as target tokens. It is fast if the text continues that
        of the last call."""
        if list(tokens[: self._num_final]) != self._tokens[: self._num_final]:
            self._num_final, self._ids = 0, []
        self._tokens = list(tokens)
        tail = self.bridge.encode(tokens[self._num_final :])
        whole = self._ids + tail
        if len(tokens) - self._num_final > 4 * WINDOW:
            self._finalise(tail)
        return whole

    def _finalise(self, tail: list[int]) -> None:
        """Keep the draft tokens up to the last border that both tokenizations share, WINDOW target tokens
        before the end."""
        met = self.bridge.alignments(self._tokens[self._num_final : len(self._tokens) - WINDOW], tail)
        if met:
            self._num_final, self._ids = self._num_final + met[-1][0], self._ids + tail[: met[-1][1]]


class IntersectionModel:
    """A draft model with another vocabulary, wrapped so that it reads and predicts target tokens
    (token-level intersection, TLI, Timor et al. 2502.05202). Tokens outside the intersection of both
    vocabularies get logit -inf."""

    def __init__(self, model: Target, bridge: Bridge):
        self.model = model
        self.bridge = bridge
        self.vocab = bridge.vocab
        self.capabilities = model.capabilities & {"tree", "rewind"}
        self.context = model.context
        self.follower = DraftTokenization(bridge)

    def sync(self, tokens: Sequence[int]) -> Scores:
        return self._widened(self.model.sync(self.follower.follow(tokens)))

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        return self._widened(
            self.model.score(
                replace(tree, tokens=tuple(self.bridge.to_theirs[t] for t in tree.tokens)), start
            )
        )

    def _widened(self, scores: Scores) -> Scores:
        ours, theirs = self.bridge.shared
        logits = scores.logits.new_full((len(scores.logits), self.vocab), -torch.inf)
        logits[:, ours] = scores.logits[:, theirs]
        return replace(scores, logits=logits)


def whole_characters(data: bytes) -> bytes:
    """Return ``data`` without an incomplete UTF-8 character at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # start of a character
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
        if byte < 0x80:
            return data
    return data
