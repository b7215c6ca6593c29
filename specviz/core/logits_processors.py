"""Logits processors: penalties, biases and masks that depend on the text, applied once per round to all rows of a draft tree.

A row's context is the prompt, the output so far and the drafted tokens on the row's own path, so siblings with different ancestors
get different penalties. Every verifier sees processed logits only; the output therefore follows plain decoding with the same
processors, whatever was drafted. Order and formulas are vLLM's: masks, bad words, minimum length, bias, then penalties (temperature,
min-p, top-k and top-p follow in ``Sampling.probs``).
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from .lazy_scalars import plain
from .parts import Scores
from .tree import DraftTree


@dataclass(frozen=True)
class Context:
    """The texts that a logits processor reads.

    prompt, output: token ids; paths: for each row of logits the drafted tokens on its path, () for the root; -1 means
    no token.
    """

    prompt: Sequence[int]
    output: Sequence[int]
    paths: Sequence[tuple[int, ...]]


class LogitsProcessor(Protocol):
    """Changes logits [rows, vocab], float32 or float64. It may do so in place."""

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        """Return the processed logits [rows, vocab]."""
        ...


class Processors:
    """The logits processors of one run, in order. Falsy if there are none."""

    def __init__(self, processors: Sequence[LogitsProcessor] = ()):
        self.processors = tuple(processors)

    def __bool__(self) -> bool:
        return bool(self.processors)

    def scores(self, tree: DraftTree, scores: Scores, tokens: Sequence[int], start: int) -> Scores:
        """Apply the processors to the target's scores; the unprocessed logits are kept as ``raw_logits``. tokens:
        prompt and output; start: length of the prompt. On a device this reads the tree's tokens."""
        if not self.processors:
            return scores
        logits = self.rows(scores.logits, row_paths(tree)[:len(scores.logits)], tokens, start)
        return replace(scores, logits=logits, raw_logits=scores.logits)

    def rows(self, logits: Tensor, paths: Sequence[tuple[int, ...]], tokens: Sequence[int], start: int) -> Tensor:
        """Return processed logits [rows, vocab], given the drafted tokens on each row's path."""
        context = Context(tokens[:start], tokens[start:], paths)
        logits = logits.clone() if logits.dtype in (torch.float32, torch.float64) else logits.float()
        for process in self.processors:
            logits = process(logits, context)
        return logits

    def draft_rows(self, logits: Tensor, paths: Sequence[tuple[int, ...]], tokens: Sequence[int], start: int) -> Tensor:
        """Return a draft model's logits with the processors applied. A row in which no token would remain is returned
        unchanged."""
        processed = self.rows(logits, [plain(path) for path in paths], tokens, start)
        return torch.where((processed > -torch.inf).any(-1, keepdim=True), processed, logits.to(processed))

    @property
    def masked(self) -> bool:
        """Whether a grammar masks the logits."""
        return any(hasattr(process, "forced") for process in self.processors)

    def forced(self, tokens: Sequence[int], start: int) -> list[int]:
        """Return the tokens that a grammar forces next, up to the first position with a choice."""
        for process in self.processors:
            forced = getattr(process, "forced", None)
            if forced is not None and (found := forced(tokens[start:])):
                return found
        return []


def row_paths(tree: DraftTree) -> list[tuple[int, ...]]:
    """Return the drafted tokens on the path of each row: () for the root, then one entry per node."""
    tokens = plain(tree.tokens)
    paths: list[tuple[int, ...]] = [()]
    for parent, token in zip(plain(tree.parents), tokens):
        paths.append((*paths[parent + 1], token))
    return paths


class TokenMask:
    """Base class of processors that ban tokens. If a ban would leave no token in a row, it is ignored for that row."""

    def banned(self, context: Context, path: tuple[int, ...]) -> Sequence[int]:
        """Return the tokens banned after the output and a path."""
        return ()

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        rows: list[int] = []
        columns: list[int] = []
        for row, path in enumerate(context.paths):
            banned = self.banned(context, path)
            rows += [row] * len(banned)
            columns += banned
        if not rows:
            return logits
        masked = logits.index_put((_indices(rows, logits), _indices(columns, logits)), logits.new_tensor(-torch.inf))
        return torch.where((masked > -torch.inf).any(-1, keepdim=True), masked, logits)


class BadWords(TokenMask):
    """Ban bad words: ban the last token of a sequence where the output ends with the other tokens. The prompt is
    ignored, as in vLLM; transformers' NoBadWords includes it.

    sequences: token ids of each word, with and without a leading space.
    """

    def __init__(self, sequences: Sequence[Sequence[int]]):
        self.sequences = [tuple(sequence) for sequence in sequences]

    def banned(self, context: Context, path: tuple[int, ...]) -> list[int]:
        longest = max(map(len, self.sequences), default=1) - 1
        text = (*context.output[max(0, len(context.output) - longest):], *path)
        return [word[-1] for word in self.sequences if len(word) == 1 or text[-(len(word) - 1):] == word[:-1]]


class MinTokens(TokenMask):
    """Bans end tokens until the output has ``count`` tokens."""

    def __init__(self, count: int, stop: Iterable[int]):
        self.count, self.stop = count, sorted(stop)

    def banned(self, context: Context, path: tuple[int, ...]) -> list[int]:
        return self.stop if len(context.output) + len(path) < self.count else []


class LogitBias:
    """Adds a bias to the logits of given tokens."""

    def __init__(self, bias: Sequence[tuple[int, float]]):
        self.tokens, self.bias = [token for token, _ in bias], [value for _, value in bias]

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        logits[:, _indices(self.tokens, logits)] += logits.new_tensor(self.bias)
        return logits


class Penalties:
    """Repetition, frequency and presence penalties, in vLLM's order.

    repetition: logits of tokens in prompt or output are divided by it where positive and multiplied where negative (Keskar et al.
    1909.05858; transformers has the same); frequency: subtracted once per occurrence in the output; presence: subtracted once from
    tokens in the output (OpenAI's; transformers has neither). Drafted tokens on a row's path count as output.
    """

    def __init__(self, repetition: float = 1.0, frequency: float = 0.0, presence: float = 0.0):
        self.repetition, self.frequency, self.presence = repetition, frequency, presence

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        vocab = logits.shape[-1]
        counts = torch.bincount(torch.tensor(list(context.output), dtype=torch.int64), minlength=vocab)[:vocab]
        counts = counts.to(logits).expand(len(logits), -1).clone()
        drafted = [(row, token) for row, path in enumerate(context.paths) for token in path if 0 <= token < vocab]
        if drafted:
            rows, tokens = (_indices(numbers, logits) for numbers in zip(*drafted))
            counts.index_put_((rows, tokens), logits.new_ones(()), accumulate=True)
        if self.repetition != 1:
            seen = counts > 0
            seen[:, _indices([token for token in set(context.prompt) if token < vocab], logits)] = True
            logits = torch.where(seen, torch.where(logits > 0, logits / self.repetition, logits * self.repetition), logits)
        return logits - self.frequency * counts - self.presence * (counts > 0).to(counts)


def _indices(numbers: Sequence[int], like: Tensor) -> Tensor:
    return torch.tensor(list(numbers), dtype=torch.int64, device=like.device)
