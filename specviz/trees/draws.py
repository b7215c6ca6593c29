"""Draw draft tokens, together with the distributions they are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ..core import State, TreeBuilder, argmax_tokens, is_on_device, lazy_ints, read, token_tensor

_CHUNKS = 64
_MOST = 64  # entries that the compiled search returns at most: it inserts each into a list
_LEAST_WIDTH = 2048  # of a row that is worth a compiled call


def with_temperature(state: State, temperature: float) -> State:
    """Return a copy of the state with another temperature, for drafting; 0 keeps the run's temperature. Any
    draft temperature is exact, because the tree stores the distribution that was sampled from."""
    return replace(state, sampling=replace(state.sampling, temperature=temperature)) if temperature else state


def first_duplicates(builder: TreeBuilder, nodes) -> list[int]:
    """Return, for each of ``nodes``, the index in ``nodes`` of the first node with the same path of tokens:
    its own index if it is the first. Nodes with equal paths have the same next-token distribution."""
    seen: dict[tuple[int, ...], int] = {}
    return [seen.setdefault(path_tokens(builder, node), i) for i, node in enumerate(nodes)]


def path_tokens(builder: TreeBuilder, node: int) -> tuple[int, ...]:
    """Return the tokens on the path from the root (excluded) to a node (included); () for the root, -1."""
    out = []
    while node >= 0:
        out.append(builder.tokens[node])
        node = builder.parents[node]
    return tuple(out[::-1])


def sample_token(logits: Tensor, state: State) -> tuple[Any, Tensor]:
    """Sample one draft token from logits [vocab] at the run's temperature; return the token and its
    distribution [vocab]. At temperature 0 it is the argmax with a one-hot distribution, and no random
    number is used."""
    if state.sampling.greedy:
        on_host = not is_on_device(logits)
        best = torch.tensor(argmax_tokens(logits[None])) if on_host else logits.argmax(-1, keepdim=True)
        return lazy_ints(best)[0], one_hot(logits, best)
    probs = state.sampling.probs(logits)
    return pick(probs, state), probs


def one_hot(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return one-hot distributions [..., vocab], 1 at tokens [..., 1]; shape and device are those of logits
    [..., vocab]."""
    probs = torch.zeros_like(logits, dtype=torch.float64 if logits.dtype == torch.float64 else torch.float32)
    return probs.scatter_(-1, tokens, 1.0)


def one_hot_rows(tokens: Sequence[int], vocab: int) -> Tensor:
    """Return one-hot distributions [tokens, vocab], 1 at each token."""
    return torch.zeros(len(tokens), vocab).scatter_(1, torch.tensor(tokens)[:, None], 1.0)


def pick(probs: Tensor, state: State) -> Any:
    """Sample a draft token from probs [vocab] with the run's random stream "draft". For probs on a device
    the token is a lazy scalar: reading it synchronises."""
    return state.rng.pick("draft", probs) if not is_on_device(probs) else state.rng.draw("draft", probs)


def sample_without_replacement(probs: Tensor, count: int, state: State) -> list[int]:
    """Sample up to ``count`` different tokens from probs [vocab] without replacement; fewer are returned if
    fewer have positive probability."""
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


def sample_without_replacement_on_device(
    distributions: Tensor, counts: list[int], state: State
) -> list[list[Any]]:
    """Sample counts[i] tokens without replacement from distributions[i] [vocab], for all rows on a device
    with one synchronisation. Return the tokens of each row, as lazy scalars; fewer where fewer have
    positive probability."""
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
        out.append(drawn[: alive.index(False)] if False in alive else drawn)
    return out


def top_k(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return values and indices [rows, count] of the ``count`` largest entries of each row of logits [rows,
    vocab], largest first.

    On a processor a compiled function searches them. Elsewhere, for many rows, the vocabulary is split into
    chunks and only the chunks with the largest maxima are searched: apart from ties the result is topk's, in
    about half the time.
    """
    rows, width = logits.shape
    found = _compiled_top(logits, count, 1.0)
    if found is not None:
        return found[0], found[1]
    if rows < 8 or width % _CHUNKS or count >= _CHUNKS or width < 2048:
        return logits.topk(min(count, width), dim=-1)
    size = width // _CHUNKS
    chunks = logits.reshape(rows, _CHUNKS, size)
    which = chunks.amax(-1).topk(count, dim=-1).indices  # [rows, count]
    inside = chunks.gather(1, which[:, :, None].expand(-1, -1, size)).reshape(rows, -1)
    values, place = inside.topk(count, dim=-1)
    return values, which.gather(1, place // size) * size + place % size


def top_log_probs(logits: Tensor, count: int, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and tokens [rows, count] of the ``count`` most likely tokens of each row of
    logits [rows, vocab] at a temperature, most likely first."""
    values, tokens, sums = top_with_sum(logits, count, temperature)
    return (values / temperature - sums[:, None]).clamp_(max=0.0), tokens


def top_with_sum(logits: Tensor, count: int, temperature: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Return values and indices [rows, count] of the ``count`` largest entries of each row of logits [rows,
    vocab], largest first, and log(sum(exp(row / temperature))) [rows]."""
    found = _compiled_top(logits, count, 1.0 / temperature)
    if found is not None:
        return found
    return *top_k(logits, count), (logits / temperature).logsumexp(-1)


def top_probs(logits: Tensor) -> Tensor:
    """Return the probability [rows] of the most likely token of each row of logits [rows, vocab]."""
    return top_log_probs(logits, 1)[0][:, 0].exp()


def _compiled_top(logits: Tensor, count: int, scale: float) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the largest entries of each row, their places, and the rows' log(sum(exp(scale row))) [rows]
    from a compiled function; None where it does not apply."""
    rows, width = logits.shape
    if (
        is_on_device(logits)
        or logits.dtype != torch.float32
        or width % 16
        or not 0 < count <= _MOST
        or not rows
    ):
        return None
    functions = _row_functions()
    if functions is None or width < _LEAST_WIDTH:
        return None
    found = functions.top_entries(logits.contiguous().numpy(), count, scale)
    values, places, sums = (torch.from_numpy(part) for part in found)
    return None if values[:, -1].isinf().any() else (values, places, sums)


@lru_cache(maxsize=1)
def _row_functions() -> Any:
    """Return the compiled functions of rows, None without numba."""
    if find_spec("numba") is None:
        return None
    from ..kernels import row_functions

    return row_functions


def top_k_entries(scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return values [count], row indices [count] and column indices [count] of the ``count`` largest
    entries of the matrix scores [rows, vocab], largest first. The matrix is searched by chunks, as in
    ``top_k``."""
    rows, width = scores.shape
    size = width // _CHUNKS if width % _CHUNKS == 0 and width >= 2048 else 1
    chunks = scores.reshape(-1, size)
    which = chunks.amax(-1).topk(min(count, len(chunks))).indices
    inside = chunks[which]
    values, place = inside.flatten().topk(min(count, inside.numel()))
    at = which[place // size] * size + place % size
    return values, at // width, at % width
