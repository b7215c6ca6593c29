"""Logits processors: penalties, biases and masks that depend on the text, applied once per round to all
rows of logits of a draft tree.

The context of a row (one position of the forward pass) is the prompt, the output so far and the draft
tokens on the path from the root to that row, so siblings with different ancestors get different penalties.
Every verifier sees processed logits only, so the output has the distribution of plain decoding with the
same processors, whatever was drafted. Order and formulas are vLLM's: masks, bad words, minimum length,
bias, then penalties (temperature, min-p, top-k and top-p follow in ``Sampling.probs``).
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

    prompt, output: token ids so far; paths: for each row of logits, the draft tokens from the root to that
    row, () for the root itself; decides: whether the rows are the target's, from which the next tokens of
    the output are taken.
    """

    prompt: Sequence[int]
    output: Sequence[int]
    paths: Sequence[tuple[int, ...]]
    decides: bool = False


class LogitsProcessor(Protocol):
    """A function that changes logits [rows, vocab], float32 or float64, and may do so in place."""

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        """Return the processed logits [rows, vocab]."""
        ...


class Processors:
    """The logits processors of one run, applied in order. ``bool(processors)`` is False if there are none."""

    def __init__(self, processors: Sequence[LogitsProcessor] = ()):
        self.processors = tuple(processors)

    def __bool__(self) -> bool:
        return bool(self.processors)

    def scores(self, tree: DraftTree, scores: Scores, tokens: Sequence[int], start: int) -> Scores:
        """Return the target's Scores with all processors applied; the model's own logits are kept as
        ``raw_logits``. tokens: prompt and output; start: length of the prompt. On a device this reads the
        tree's tokens."""
        if not self.processors:
            return scores
        logits = self.rows(scores.logits, row_paths(tree)[: len(scores.logits)], tokens, start, decides=True)
        return replace(scores, logits=logits, raw_logits=scores.model_logits)

    def rows(
        self,
        logits: Tensor,
        paths: Sequence[tuple[int, ...]],
        tokens: Sequence[int],
        start: int,
        decides: bool = False,
    ) -> Tensor:
        """Return processed logits [rows, vocab] in float32 or float64. paths: draft tokens from the root to
        each row, -1 for a probe without a token; tokens: prompt and output; start: length of the prompt;
        decides: see Context. Rows after a probe without a token follow no text and are returned
        unchanged."""
        logits = logits.clone() if logits.dtype in (torch.float32, torch.float64) else logits.float()
        texts = [row for row, path in enumerate(paths) if -1 not in path]
        if len(texts) == len(paths):
            return self._processed(logits, Context(tokens[:start], tokens[start:], paths, decides))
        context = Context(tokens[:start], tokens[start:], [paths[row] for row in texts], decides)
        at = _indices(texts, logits)
        logits[at] = self._processed(logits[at], context)
        return logits

    def _processed(self, logits: Tensor, context: Context) -> Tensor:
        for process in self.processors:
            logits = process(logits, context)
        return logits

    def draft_rows(
        self, logits: Tensor, paths: Sequence[tuple[int, ...]], tokens: Sequence[int], start: int
    ) -> Tensor:
        """Return a draft model's logits [rows, vocab] with the processors applied (arguments as for
        ``rows``). A row in which every token is banned is returned unchanged."""
        processed = self.rows(logits, [plain(path) for path in paths], tokens, start)
        return torch.where((processed > -torch.inf).any(-1, keepdim=True), processed, logits.to(processed))

    @property
    def has_grammar(self) -> bool:
        """Whether one of the processors is a grammar mask (structured output); other bans of tokens do not
        count."""
        return any(hasattr(process, "forced") for process in self.processors)

    def forced(self, tokens: Sequence[int], start: int) -> list[int]:
        """Return the tokens that a grammar forces after the output tokens[start:], up to the first position
        where it leaves a choice."""
        for process in self.processors:
            forced = getattr(process, "forced", None)
            if forced is not None and (found := forced(tokens[start:])):
                return found
        return []


def row_paths(tree: DraftTree) -> list[tuple[int, ...]]:
    """Return for each row of a tree's logits the draft tokens from the root to it: () for the root, then
    one tuple per node."""
    tokens = plain(tree.tokens)
    paths: list[tuple[int, ...]] = [()]
    for parent, token in zip(plain(tree.parents), tokens):
        paths.append((*paths[parent + 1], token))
    return paths


class TokenMask:
    """Base class of logits processors that ban tokens by setting their logits to -inf. A ban that would
    leave a row without any token is ignored for that row."""

    def banned(self, context: Context, path: tuple[int, ...]) -> Sequence[int]:
        """Return the token ids that are banned at the position after the output and the draft tokens of
        ``path``."""
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
        masked = logits.index_put(
            (_indices(rows, logits), _indices(columns, logits)), logits.new_tensor(-torch.inf)
        )
        return torch.where((masked > -torch.inf).any(-1, keepdim=True), masked, logits)


class BadWords(TokenMask):
    """Logits processor that bans bad words: it bans the last token of a word's sequence where the output
    ends with the other tokens of it. The prompt is ignored, as in vLLM; transformers' NoBadWords includes
    it.

    sequences: token ids of each word, with and without a leading space.
    """

    def __init__(self, sequences: Sequence[Sequence[int]]):
        self.sequences = [tuple(sequence) for sequence in sequences]

    def banned(self, context: Context, path: tuple[int, ...]) -> list[int]:
        """Return the last token of each bad word whose other tokens end the text."""
        longest = max(map(len, self.sequences), default=1) - 1
        text = (*context.output[max(0, len(context.output) - longest) :], *path)
        return [
            word[-1] for word in self.sequences if len(word) == 1 or text[-(len(word) - 1) :] == word[:-1]
        ]


class MinTokens(TokenMask):
    """Logits processor that bans the end tokens ``stop`` until the output has ``count`` tokens."""

    def __init__(self, count: int, stop: Iterable[int]):
        self.count, self.stop = count, sorted(stop)

    def banned(self, context: Context, path: tuple[int, ...]) -> list[int]:
        """Return the end tokens as long as output and path are shorter than ``count`` tokens."""
        return self.stop if len(context.output) + len(path) < self.count else []


class LogitBias:
    """Logits processor that adds a bias to the logits of given tokens. bias: pairs (token id, value)."""

    def __init__(self, bias: Sequence[tuple[int, float]]):
        self.tokens, self.bias = [token for token, _ in bias], [value for _, value in bias]

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        logits[:, _indices(self.tokens, logits)] += logits.new_tensor(self.bias)
        return logits


class Penalties:
    """Logits processor for repetition, frequency and presence penalties, in vLLM's order.

    repetition: logits of tokens in prompt or output are divided by it where positive and multiplied where
    negative (Keskar et al. 1909.05858; transformers has the same); frequency: subtracted once per
    occurrence in the output; presence: subtracted once from tokens in the output (OpenAI's; transformers
    has neither). Draft tokens on a row's path count as output.
    """

    def __init__(self, repetition: float = 1.0, frequency: float = 0.0, presence: float = 0.0):
        self.repetition = repetition
        self.frequency = frequency
        self.presence = presence

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        vocab = logits.shape[-1]
        counts = torch.bincount(torch.tensor(list(context.output), dtype=torch.int64), minlength=vocab)[
            :vocab
        ]
        counts = counts.to(logits).expand(len(logits), -1).clone()
        drafted = [(row, token) for row, path in enumerate(context.paths) for token in path if token < vocab]
        if drafted:
            rows, tokens = (_indices(numbers, logits) for numbers in zip(*drafted))
            counts.index_put_((rows, tokens), logits.new_ones(()), accumulate=True)
        if self.repetition != 1:
            seen = counts > 0
            seen[:, _indices([token for token in set(context.prompt) if token < vocab], logits)] = True
            logits = torch.where(
                seen, torch.where(logits > 0, logits / self.repetition, logits * self.repetition), logits
            )
        return logits - self.frequency * counts - self.presence * (counts > 0).to(counts)


def _indices(numbers: Sequence[int], like: Tensor) -> Tensor:
    return torch.tensor(list(numbers), dtype=torch.int64, device=like.device)
