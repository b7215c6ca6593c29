"""Draw draft tokens, together with the distributions they are drawn from."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..core import State, TreeBuilder, argmax_tokens, is_on_device, lazy_ints, read, token_tensor

_CHUNKS = 64


def with_temperature(state: State, temperature: float) -> State:
    """Return the state with a temperature of its own for drafting; 0 keeps the run's. Any temperature is exact, because
    the tree stores the distribution that was sampled from."""
    return replace(state, sampling=replace(state.sampling, temperature=temperature)) if temperature else state


def first_duplicates(build: TreeBuilder, nodes) -> list[int]:
    """Return for each node the index in ``nodes`` of the first node with the same path of tokens. Such duplicates share
    a distribution."""
    seen: dict[tuple[int, ...], int] = {}
    return [seen.setdefault(path_tokens(build, node), i) for i, node in enumerate(nodes)]


def path_tokens(build: TreeBuilder, node: int) -> tuple[int, ...]:
    """Return the tokens from below the root down to a node; () for the root, -1."""
    out = []
    while node >= 0:
        out.append(build.tokens[node])
        node = build.parents[node]
    return tuple(out[::-1])


def draw_one(logits: Tensor, state: State) -> tuple[Any, Tensor]:
    """Sample one token for logits [vocab]; return it and its distribution. At temperature 0 the distribution is one-hot
    and no random number is used."""
    if state.sampling.greedy:
        on_host = not is_on_device(logits)
        best = torch.tensor(argmax_tokens(logits[None])) if on_host else logits.argmax(-1, keepdim=True)
        return lazy_ints(best)[0], one_hot(logits, best)
    probs = state.sampling.probs(logits)
    return pick(probs, state), probs


def one_hot(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return one-hot distributions as wide as logits [..., vocab], on tokens [..., 1]."""
    probs = torch.zeros_like(logits, dtype=torch.float64 if logits.dtype == torch.float64 else torch.float32)
    return probs.scatter_(-1, tokens, 1.0)


def pick(probs: Tensor, state: State) -> Any:
    """Sample a draft token from probs [vocab]. For probs on a device the token is a lazy scalar."""
    return state.rng.pick("draft", probs) if not is_on_device(probs) else state.rng.draw("draft", probs)


def draw_some(probs: Tensor, count: int, state: State) -> list[int]:
    """Sample up to ``count`` different tokens from probs [vocab] without replacement; fewer if fewer have positive
    probability."""
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
    """Sample without replacement, as ``draw_some`` does, from several distributions on a device, with one
    synchronisation for all of them."""
    tokens, left = [], []
    for probs, count in zip(distributions, counts):
        tokens.append([pick(probs, state)])
        rest = probs
        for _ in range(1, count):
            rest = rest.index_fill(0, token_tensor(probs.device, tokens[-1][-1:]), 0.0)
            mass = rest.sum(dim=0, keepdim=True)
            rest = torch.where(mass > 0, rest / mass, probs)  # draws from an empty rest are dropped below
            left.append(mass)
            tokens[-1].append(pick(rest, state))
    masses = iter(read(torch.cat(left)) if left else ())
    out = []
    for drawn in tokens:
        alive = [True, *(next(masses) > 0 for _ in drawn[1:])]
        out.append(drawn[:alive.index(False)] if False in alive else drawn)
    return out


def best(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return values and indices of the ``count`` largest of each row [rows, vocab], best first.

    For many rows the vocabulary is split into chunks and only the chunks with the largest maxima are searched: apart from ties the
    result is topk's, in about half the time.
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
    """Return the ``count`` largest entries of scores [rows, vocab], best first: values, rows, columns. Searched by
    chunks, as in ``best``."""
    rows, width = scores.shape
    size = width // _CHUNKS if width % _CHUNKS == 0 and width >= 2048 else 1
    chunks = scores.reshape(-1, size)
    which = chunks.amax(-1).topk(min(count, len(chunks))).indices
    inside = chunks[which]
    values, place = inside.flatten().topk(min(count, inside.numel()))
    at = which[place // size] * size + place % size
    return values, at // width, at % width
