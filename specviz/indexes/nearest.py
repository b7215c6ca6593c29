"""The nearest of many states: exactly, or with an approximate index where a large store has one.

The states that wrote the tokens of a store, one row a token: standardised, projected on their main directions (PCA), unit
length, half precision, memory-mapped (DReSD, Gritta et al. 2502.15572, who search with ScaNN). Exact search compares only the
places of the token in question, which the store's suffix array knows; up to ``FEW`` of them, spread over the store. Beyond that
an HNSW graph by faiss (Malkov and Yashunin 1603.09320), if the store was built with one and faiss is installed; faiss is
optional: ``pip install faiss-cpu``. ``how`` says which of the two is in use.
"""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .suffix_array import SuffixArray

FEW = 20_000  # places of one token that are compared exactly
SPARE = 16  # neighbours of a graph that are asked for each one wanted: those behind another token are thrown away
NEAR = 0.02  # of the largest: how far the logits by which a target is known may be off
EFFORT = 128  # states a search of the graph visits at least


@dataclass(frozen=True)
class Frame:
    """From a target's last states to keys. centre, spread [d]; axes [d, dim]."""

    centre: Tensor
    spread: Tensor
    axes: Tensor

    @classmethod
    def fit(cls, states: Tensor, dim: int) -> Frame:
        """On states [rows, d]: their mean, their spread, and their ``dim`` directions of greatest variance."""
        states = states.double()
        centre, spread = states.mean(0), states.std(0, correction=0) + 1e-6
        z = (states - centre) / spread
        axes = torch.linalg.eigh(z.T @ z / len(z)).eigenvectors.flip(1)[:, :dim]
        return cls(centre.float(), spread.float(), axes.float().contiguous())

    def keys(self, states: Tensor) -> Tensor:
        """[rows, dim], unit length."""
        z = (states.float().cpu() - self.centre) / self.spread
        return torch.nn.functional.normalize(z @ self.axes, dim=-1)


@dataclass(frozen=True)
class Dense:
    """keys float16 [tokens, dim]: of the state that wrote each token of a store (zeros for a document's first one); graph: an
    approximate index of them, or None."""

    keys: np.ndarray
    frame: Frame
    graph: Any = None

    @property
    def how(self) -> str:
        return "exact" if self.graph is None else "faiss HNSW"

    def nearest(self, array: SuffixArray, token: int, key: Tensor, count: int) -> list[tuple[int, float]]:
        """(place, cosine) of up to ``count`` places where ``token`` stands, written in the states nearest to ``key`` [dim]."""
        low, high = array.range([token])
        if low == high:
            return []
        if self.graph is not None and high - low > FEW:
            likeness, places = self.graph.search(key[None].numpy(), count * SPARE)
            found = [(int(p), float(x)) for p, x in zip(places[0], likeness[0]) if p >= 0 and int(array.tokens[p]) == token]
            return found[:count]
        places = np.sort(np.asarray(array.order[low:high:-(-(high - low) // FEW)]))
        likeness = torch.from_numpy(self.keys[places].astype(np.float32)) @ key
        best = likeness.topk(min(count, len(places)))
        return [(int(places[i]), x) for i, x in zip(best.indices.tolist(), best.values.tolist())]


def open_dense(folder: Path, tokens: int) -> Dense | None:
    """What a store's folder holds besides its text; None when it holds no states. Raises ValueError when they are damaged."""
    if not (folder / "keys.npy").is_file():
        return None
    keys = np.load(folder / "keys.npy", mmap_mode="r", allow_pickle=False)
    with np.load(folder / "frame.npz", allow_pickle=False) as frame:
        centre, spread, axes = (torch.from_numpy(frame[name]) for name in ("centre", "spread", "axes"))
    if keys.dtype != np.float16 or keys.ndim != 2 or len(keys) != tokens or axes.shape != (len(centre), keys.shape[1]):
        raise ValueError("its states are not those of its tokens")
    return Dense(keys, Frame(centre, spread, axes), open_graph(folder / "keys.faiss", tokens))


def open_graph(path: Path, tokens: int) -> Any:
    """The memory-mapped approximate index, or None where there is none or faiss is not installed. Raises ValueError."""
    faiss = library()
    if faiss is None or not path.is_file():
        return None
    try:
        graph = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise ValueError(f"its index cannot be read: {str(error).splitlines()[0][:80]}") from None
    if graph.ntotal != tokens:
        raise ValueError("its index is not that of its tokens")
    graph.hnsw.efSearch = EFFORT
    return graph


def make_graph(keys: np.ndarray) -> Any:
    """An HNSW graph of keys [tokens, dim] for inner products; None without faiss."""
    faiss = library()
    if faiss is None:
        return None
    graph = faiss.IndexHNSWFlat(keys.shape[1], 16, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = 64
    graph.hnsw.efSearch = EFFORT
    graph.add(np.ascontiguousarray(keys, dtype=np.float32))
    return graph


def library() -> Any:
    """The module faiss, or None where it is not installed."""
    try:
        import faiss
    except ImportError:
        return None
    return faiss


def mark_of(target: Any) -> list[float]:
    """What a target is known by, as far as its states depend on its weights at both ends: some of what its output matrix says of
    some of its embeddings."""
    ids = list(range(0, target.vocab, max(1, target.vocab // 8)))[:8]  # the first tokens of all are seldom seen and learn little
    return [round(float(x), 4) for x in target.head(target.embed(ids)).detach().float().cpu()[:, ids].flatten()]


def marks(told: Any, target: Any) -> bool:
    """Whether ``mark_of`` some target says that it was this one. Every processor and every layout of the weights rounds otherwise, and
    half precision more so; other weights are further off by far."""
    now = np.array(mark_of(target))
    if not isinstance(told, list) or len(told) != len(now) or not all(type(x) in (int, float) for x in told):
        return False
    return bool(np.abs(np.array(told, float) - now).max(initial=0) <= NEAR * np.abs(now).max(initial=0))
