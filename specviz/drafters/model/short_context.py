"""Draft on a shortened prompt: RAPID (Chen et al. 2502.20330).

The prompt is split into chunks; the chunks most relevant to the last one by BM25 (the paper uses an
embedding model) are kept in their order, up to a maximum number of tokens, between the beginning and the
end of the prompt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from ...core import Budget, DraftSteps, Scores, State, Step, Target
from .chain import DraftChain

HEAD = 16  # first tokens of the prompt, which hold the opening of the chat template


@dataclass(frozen=True)
class Chunk:
    """The chunk prompt[start:end] and its BM25 relevance score for the last tokens of the prompt."""

    start: int
    end: int
    score: float


def score_chunks(
    prompt: Sequence[int], size: int, head: int = HEAD, k: float = 1.2, b: float = 0.75
) -> list[Chunk]:
    """Split the prompt between its first ``head`` and its last ``size`` tokens into chunks of ``size``
    tokens; return them with their BM25 scores (parameters k and b) for the last ``size`` tokens."""
    bounds = [(at, min(at + size, len(prompt) - size)) for at in range(head, len(prompt) - size, size)]
    counts = [Counter(prompt[a:z]) for a, z in bounds]
    mean = sum(z - a for a, z in bounds) / max(1, len(bounds))
    out = [0.0] * len(bounds)
    for token in set(prompt[-size:]):
        known = sum(token in one for one in counts)
        weight = math.log(1 + (len(counts) - known + 0.5) / (known + 0.5))
        for i, one in enumerate(counts):
            if token in one:
                out[i] += (
                    weight
                    * one[token]
                    * (k + 1)
                    / (one[token] + k * (1 - b + b * (bounds[i][1] - bounds[i][0]) / mean))
                )
    return [Chunk(a, z, score) for (a, z), score in zip(bounds, out)]


class ShortContext(DraftChain):
    """Drafter of a chain with the draft model on a shortened prompt: its first tokens, the most relevant
    chunks and its last tokens (RAPID, Chen et al. 2502.20330).

    max_chunk_tokens: maximum number of tokens in kept chunks; size: tokens per chunk; min_prob: the draft
    ends after a token with a lower draft probability. beliefs: the draft distribution [vocab] at each node
    of the last proposal (at temperature 0 the softmax)."""

    def __init__(self, model: Target, max_chunk_tokens: int = 512, size: int = 64, min_prob: float = 0.4):
        super().__init__(model)
        self.context = model.context
        self.max_chunk_tokens = max_chunk_tokens
        self.size = size
        self.min_prob = min_prob

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        prompt = state.tokens[: state.start]
        self.kept_chunks: list[Chunk] = []
        self.opening, self.suffix_start = prompt, state.start  # a short prompt is used whole
        if len(prompt) > HEAD + self.size + self.max_chunk_tokens:
            kept, left = [], self.max_chunk_tokens
            for piece in sorted(score_chunks(prompt, self.size), key=lambda p: (-p.score, p.start)):
                if piece.score > 0 and piece.end - piece.start <= left:
                    kept.append(piece)
                    left -= piece.end - piece.start
            self.kept_chunks = sorted(kept, key=lambda p: p.start)
            self.opening = (
                prompt[:HEAD]
                + [t for p in self.kept_chunks for t in prompt[p.start : p.end]]
                + prompt[-self.size :]
            )
        if len(self.opening) <= self.context:
            super().start(replace(state, tokens=self.opening), target, prefill)

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        self.beliefs: list[Tensor] = []

        def stop(step: Step) -> bool:
            self.beliefs.append(step.probs)
            return float(step.probs[step.token]) < self.min_prob

        short = self.opening + state.tokens[self.suffix_start :]
        state.note(
            "chunks",
            kept=[{"start": p.start, "end": p.end, "score": round(p.score, 3)} for p in self.kept_chunks],
            read=len(short),
            of=len(state.tokens),
            whole=not self.kept_chunks,
        )
        left = max(0, self.context - len(short))
        return (
            yield from super().steps(
                replace(state, tokens=short), replace(budget, gamma=min(budget.gamma, left), stop=stop)
            )
        )
