"""A draft model of another vocabulary: what both tokenizers can say, and the text so far in the draft's tokens (Timor et al.
2502.05202).

Everything is compared as bytes, so a leading space, half a character or a control token is never mistaken for something else.
A tokenizer is anything with ``__call__(token) -> bytes`` (a control token's are its name), ``special`` (the control tokens),
``size`` and ``encode(bytes) -> tokens``.
"""
from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Sequence

import torch
from torch import Tensor

from ...core import DraftTree, Scores, Target

WINDOW = 10  # tokens behind the end that are encoded again, since a new token may join with them


class Bridge:
    """Two vocabularies. ours: the target's tokenizer, theirs: the draft's; vocab and their_vocab: the widths of the logits.

    to_theirs[t]: the token of theirs that says what our t says, -1 = none; shared: both tokens of each such pair [2, pairs].
    """

    def __init__(self, ours: Any, theirs: Any, vocab: int, their_vocab: int):
        self.ours, self.theirs, self.vocab, self.their_vocab = ours, theirs, vocab, their_vocab
        said = {self._key(theirs, token): token for token in range(min(theirs.size, their_vocab) - 1, -1, -1) if theirs(token)}
        self.to_theirs = [said.get(self._key(ours, t), -1) if t < ours.size and ours(t) else -1 for t in range(vocab)]
        mine: dict[int, int] = {}
        for t, token in enumerate(self.to_theirs):
            mine.setdefault(token, t)
        mine.pop(-1, None)
        with torch.inference_mode(False):  # what learns while it serves differentiates through these places
            self.shared = torch.tensor([[*mine.values()], [*mine.keys()]])

    @staticmethod
    def _key(words: Any, token: int) -> tuple[bool, bytes]:
        return token in words.special, words(token)

    @property
    def overlap(self) -> float:
        """The share of their tokens that the target has, too."""
        return self.shared.shape[1] / max(1, min(self.theirs.size, self.their_vocab))

    @cached_property
    def to_ours(self) -> dict[int, int]:
        """Their token -> the one of ours that says the same, where there is one."""
        return dict(zip(self.shared[1].tolist(), self.shared[0].tolist()))

    @cached_property
    def spelled(self) -> list[tuple[int, ...]]:
        """Their token -> our tokens that spell it; none for a control token that the target has not."""

        def spell(token: int) -> tuple[int, ...]:
            if token in self.to_ours:
                return (self.to_ours[token],)
            nothing = token in self.theirs.special or token >= self.theirs.size
            return () if nothing else tuple(self.ours.encode(self.theirs(token)))

        return [spell(token) for token in range(self.their_vocab)]

    @cached_property
    def first(self) -> Tensor:
        """Their token -> the first of our tokens that spell it, -1 = none; [their_vocab]."""
        return torch.tensor([tokens[0] if tokens else -1 for tokens in self.spelled])

    @cached_property
    def joins(self) -> dict[int, tuple[Tensor, Tensor]]:
        """Our tokens that are two of theirs: their first token -> the second ones, and what the two are in ours."""
        found: dict[int, list[tuple[int, int]]] = {}
        for token, other in enumerate(self.to_theirs):
            said = self.ours(token) if other < 0 and token < self.ours.size and token not in self.ours.special else b""
            pair = self.theirs.encode(said) if len(said) > 1 else []
            if len(pair) == 2 and self.theirs(pair[0]) + self.theirs(pair[1]) == said:
                found.setdefault(pair[0], []).append((pair[1], token))
        return {first: tuple(torch.tensor(pairs).T) for first, pairs in found.items()}

    def encode(self, tokens: Sequence[int]) -> list[int]:
        """Our tokens as theirs: control tokens by name (left out where they have none), the text between them as one piece."""
        out, run = [], bytearray()
        for token in tokens:
            if token not in self.ours.special:
                run += self.ours(token)
                continue
            out += self.theirs.encode(bytes(run)) if run else []
            out += [self.to_theirs[token]] if self.to_theirs[token] >= 0 else []
            run.clear()
        return out + (self.theirs.encode(bytes(run)) if run else [])

    def meet(self, ours: Sequence[int], theirs: Sequence[int]) -> list[tuple[int, int]]:
        """(i, j) wherever the first i of our tokens say what the first j of theirs say. Control tokens are as long in both."""
        ends, at, found = {}, 0, []
        for j, token in enumerate(theirs, 1):
            at += len(self.theirs(token))
            ends[at] = j
        at = 0
        for i, token in enumerate(ours, 1):
            at += len(self.ours(token)) if token not in self.ours.special or self.to_theirs[token] >= 0 else 0
            found += [(i, ends[at])] if at in ends else []
        return found

    def decode(self, before: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """What the draft said in our tokens, as our tokenizer would write it behind our tokens ``before``: they are encoded once
        more together, and what begins where the draft begins is taken. Half a character at the end waits for its other half."""
        out, run = [], bytearray()
        context = self._text_before(before)
        for token in drafted:
            if token not in self.theirs.special:
                run += self.theirs(token)
                continue
            out += self._ours_of(context, bytes(run))
            name = self.theirs(token)
            out += [t for t in self.ours.special if self.ours(t) == name][:1]
            return out  # nothing is written behind a control token
        return out + self._ours_of(context, whole_characters(bytes(run)))

    def _text_before(self, before: Sequence[int]) -> bytes:
        tail: list[int] = []
        for token in reversed(before[-WINDOW:]):
            if token in self.ours.special:
                break
            tail.append(token)
        return b"".join(self.ours(token) for token in reversed(tail))

    def _ours_of(self, context: bytes, said: bytes) -> list[int]:
        if not said:
            return []
        tokens, length = self.ours.encode(context + said), 0
        for i in range(len(tokens) - 1, -1, -1):
            length += len(self.ours(tokens[i]))
            if length == len(said):
                return tokens[i:]
            if length > len(said):
                break  # a token reaches over the border
        return self.ours.encode(said)


class Follower:
    """The text so far in their tokens. What is far behind is settled and not encoded again."""

    def __init__(self, bridge: Bridge):
        self.bridge = bridge
        self._tokens: list[int] = []
        self._settled, self._ids = 0, []  # our tokens that are settled, and what they are in theirs

    def follow(self, tokens: Sequence[int]) -> list[int]:
        """Their tokens for ours, which may go on from the last ones or not."""
        if list(tokens[:self._settled]) != self._tokens[:self._settled]:
            self._settled, self._ids = 0, []
        self._tokens = list(tokens)
        tail = self.bridge.encode(tokens[self._settled:])
        whole = self._ids + tail
        if len(tokens) - self._settled > 4 * WINDOW:
            self._settle(tail)
        return whole

    def _settle(self, tail: list[int]) -> None:
        """Settle up to the last place, a window from the end, where a token of each begins."""
        met = self.bridge.meet(self._tokens[self._settled:len(self._tokens) - WINDOW], tail)
        if met:
            self._settled, self._ids = self._settled + met[-1][0], self._ids + tail[:met[-1][1]]


class Translated:
    """Their model behind the target's vocabulary (token-level intersection): tokens and logits are ours; what only one side has
    can neither be drafted nor asked about."""

    def __init__(self, model: Target, bridge: Bridge):
        self.model, self.bridge, self.vocab = model, bridge, bridge.vocab
        self.capabilities, self.context, self.follower = model.capabilities & {"tree", "rewind"}, model.context, Follower(bridge)

    def sync(self, tokens: Sequence[int]) -> Scores:
        return self._widened(self.model.sync(self.follower.follow(tokens)))

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        return self._widened(self.model.score(replace(tree, tokens=tuple(self.bridge.to_theirs[t] for t in tree.tokens)), start))

    def _widened(self, scores: Scores) -> Scores:
        ours, theirs = self.bridge.shared
        logits = scores.logits.new_full((len(scores.logits), self.vocab), -torch.inf)
        logits[:, ours] = scores.logits[:, theirs]
        return replace(scores, logits=logits)


def whole_characters(data: bytes) -> bytes:
    """The data without the beginning of a UTF-8 character at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # a character begins here
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
        if byte < 0x80:
            return data
    return data
