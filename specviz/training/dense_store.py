"""Hidden states of a datastore's tokens: the target's state that predicted each of them (DReSD, Gritta et
al. 2502.15572).

The target reads every document once; the hidden state that predicts a token is that token's key.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..indexes.nearest import HiddenStateIndex, KeyProjection, build_hnsw_index, target_fingerprint
from ..indexes.store import Store
from ..indexes.suffix_array import PART

DIM = 64  # dimensions of a key (the paper's)
SAMPLE = 20_000  # states to which the projection is fitted
GRAPH = 200_000  # tokens from which on a store gets an approximate index, where faiss is installed


def with_states(store: Store, target: Any, dim: int = DIM, graph: int = GRAPH) -> Store:
    """Return the datastore with a key for each token: the target's hidden state that predicted it, reduced
    to ``dim`` numbers.

    Documents longer than the target's context are processed in pieces. graph: with more tokens than this,
    also build an approximate index."""
    began = time.monotonic()
    target.capture(frozenset({"final"}))
    pieces = list(_documents(store.array.tokens, target.context))
    fitted, rows = [], 0
    for start, end in pieces:  # only the documents to which the projection is fitted
        if rows >= SAMPLE:
            break
        fitted.append(_states(target, store, start, end))
        rows += len(fitted[-1])
    states = torch.cat(fitted) if fitted else torch.zeros(0, target.hidden)
    frame = (
        KeyProjection.fit(states, min(dim, target.hidden))
        if len(states)
        else KeyProjection(
            torch.zeros(target.hidden),
            torch.ones(target.hidden),
            torch.zeros(target.hidden, min(dim, target.hidden)),
        )
    )
    keys = np.zeros((len(store.array), frame.axes.shape[1]), np.float16)
    for i, (start, end) in enumerate(pieces):
        found = fitted[i] if i < len(fitted) else _states(target, store, start, end)
        keys[start + 1 : end] = frame.keys(found).numpy()
    target.close()
    dense = HiddenStateIndex(keys, frame, build_hnsw_index(keys) if len(keys) >= graph else None)
    facts = {
        **store.facts,
        "states": target_fingerprint(target),
        "dim": keys.shape[1],
        "bytes": store.facts["bytes"] + keys.nbytes,
        "build_seconds": round(store.facts["build_seconds"] + time.monotonic() - began, 3),
        "search": dense.how,
    }
    return replace(store, facts=facts, dense=dense)


def _documents(tokens: np.ndarray, context: int):
    """Return (start, end) of each document, or piece of one, of at least two tokens."""
    borders = np.flatnonzero(tokens == PART).tolist()
    start = 0
    for end in [*borders, len(tokens)]:
        for at in range(start, end, context - 1):
            if min(at + context, end) - at >= 2:
                yield at, min(at + context, end)
        start = end + 1


def _states(target: Any, store: Store, start: int, end: int) -> torch.Tensor:
    """Return states [end - start - 1, d] that predict tokens start + 1 .. end - 1."""
    target.close()
    with torch.inference_mode():
        return target.sync(store.array.tokens[start:end].tolist()).hidden_states["final"].float().cpu()
