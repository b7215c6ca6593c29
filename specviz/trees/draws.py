"""Drawing draft tokens with the law they are really drawn from."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..core import State, TreeBuilder, token_tensor, argmax_tokens, numbers, read

_CHUNKS = 64


def with_temperature(state: State, temperature: float) -> State:
    """The run as a draft with a temperature of its own sees it; heat 0: the run's. A law of another temperature is as honest."""
    return replace(state, sampling=replace(state.sampling, temperature=temperature)) if temperature else state


def first_duplicates(build: TreeBuilder, nodes) -> list[int]:
    """For each node the place in ``nodes`` of the first one with the same tokens above and at it: twins follow one law."""
    seen: dict[tuple[int, ...], int] = {}
    return [seen.setdefault(_path(build, node), i) for i, node in enumerate(nodes)]


def _path(build: TreeBuilder, node: int) -> tuple[int, ...]:
    out = []
    while node >= 0:
        out.append(build.tokens[node])
        node = build.parents[node]
    return tuple(out)


def draw_one(logits: Tensor, state: State) -> tuple[Any, Tensor]:
    """One token from the run's law over logits [vocab], and that law. At temperature 0 the law is one-hot and no dice roll."""
    if state.sampling.greedy:
        on_host = logits.device.type == "cpu"
        best = torch.tensor(argmax_tokens(logits[None])) if on_host else logits.argmax(-1, keepdim=True)
        return numbers(best)[0], one_hot(logits, best)
    probs = state.sampling.probs(logits)
    return pick(probs, state), probs


def one_hot(logits: Tensor, tokens: Tensor) -> Tensor:
    """Laws as wide as logits [..., vocab] that have all their mass on tokens [..., 1]."""
    probs = torch.zeros_like(logits, dtype=torch.float64 if logits.dtype == torch.float64 else torch.float32)
    return probs.scatter_(-1, tokens, 1.0)


def pick(probs: Tensor, state: State) -> Any:
    """A draft token drawn from law [vocab]; on a device it stays there until somebody asks."""
    return state.rng.pick("draft", probs) if probs.device.type == "cpu" else state.rng.draw("draft", probs)


def draw_some(probs: Tensor, count: int, state: State) -> list[int]:
    """Up to ``count`` different tokens from law [vocab], one after the other without replacement; fewer where it has fewer."""
    tokens: list[int] = []
    while len(tokens) < count:
        if tokens:
            probs = probs.clone() if len(tokens) == 1 else probs
            probs[tokens[-1]] = 0
            mass = float(probs.sum())
            if mass <= 0:
                break
            probs /= mass
        tokens.append(state.rng.pick("draft", probs))
    return tokens


def draw_on_device(distributions: Tensor, counts: list[int], state: State) -> list[list[Any]]:
    """The same of several laws on a device, where one wait tells of all of them how many tokens they had."""
    tokens, left = [], []
    for probs, count in zip(distributions, counts):
        tokens.append([pick(probs, state)])
        rest = probs
        for _ in range(1, count):
            rest = rest.index_fill(0, token_tensor(probs.device, tokens[-1][-1:]), 0.0)
            mass = rest.sum(dim=0, keepdim=True)
            rest = torch.where(mass > 0, rest / mass, probs)  # a law without tokens is drawn from to no end
            left.append(mass)
            tokens[-1].append(pick(rest, state))
    told = iter(read(torch.cat(left)) if left else ())
    out = []
    for drawn in tokens:
        alive = [True, *(next(told) > 0 for _ in drawn[1:])]
        out.append(drawn[:alive.index(False)] if False in alive else drawn)
    return out


def best(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Values and indices of the ``count`` largest of each row [rows, vocab], best first.

    For many rows the vocabulary is cut into chunks and only the chunks with the largest maxima are searched; ties apart the
    result is topk's, in about half its time.
    """
    rows, width = logits.shape
    if rows < 8 or width % _CHUNKS or count >= _CHUNKS or width < 2048:
        return logits.topk(min(count, width), dim=-1)
    size = width // _CHUNKS
    chunks = logits.reshape(rows, _CHUNKS, size)
    which = chunks.amax(-1).topk(count, dim=-1).indices  # [rows, count]
    inside = chunks.gather(1, which[:, :, None].expand(-1, -1, size)).reshape(rows, -1)
    values, place = inside.topk(count, dim=-1)
    return values, which.gather(1, place // size) * size + place % size


def best_of_all(scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The ``count`` largest of all entries of scores [rows, vocab], best first: values, rows, columns. Searched by chunks, too:
    an entry among the largest lies in a chunk whose maximum is."""
    rows, width = scores.shape
    size = width // _CHUNKS if width % _CHUNKS == 0 and width >= 2048 else 1
    chunks = scores.reshape(-1, size)
    which = chunks.amax(-1).topk(min(count, len(chunks))).indices
    inside = chunks[which]
    values, place = inside.flatten().topk(min(count, inside.numel()))
    at = which[place // size] * size + place % size
    return values, at // width, at % width
