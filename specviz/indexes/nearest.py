"""Nearest-neighbour search over the hidden states of a datastore, exact or approximate.

Each token has a key: the hidden state that predicted it, standardised, projected on principal components,
normalised, in half precision, memory-mapped (DReSD, Gritta et al. 2502.15572, who use ScaNN). Exact search
compares only the positions of the given token, found by the suffix array; at most ``FEW`` of them, spread
evenly. For more positions an HNSW graph of faiss (Malkov and Yashunin 1603.09320) is used, if the datastore
has one and faiss is installed (optional: ``pip install faiss-cpu``). ``how`` is the name of the search in
use.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .suffix_array import SuffixArray

FEW = 20_000  # positions of one token that are compared exactly
SPARE = 16  # neighbours requested per result: those of other tokens are dropped
NEAR = 0.02  # tolerance of the fingerprint logits, relative to the largest
EFFORT = 128  # minimum nodes visited by a graph search


@dataclass(frozen=True)
class KeyProjection:
    """Projection from hidden states to search keys: standardise, then project on principal components.
    centre, spread [hidden]; axes [hidden, dim]."""

    centre: Tensor
    spread: Tensor
    axes: Tensor

    @classmethod
    def fit(cls, states: Tensor, dim: int) -> KeyProjection:
        """Fit on hidden states [rows, hidden]: mean, standard deviation and the first ``dim`` principal
        components."""
        states = states.double()
        centre, spread = states.mean(0), states.std(0, correction=0) + 1e-6
        z = (states - centre) / spread
        axes = torch.linalg.eigh(z.T @ z / len(z)).eigenvectors.flip(1)[:, :dim]
        return cls(centre.float(), spread.float(), axes.float().contiguous())

    def keys(self, states: Tensor) -> Tensor:
        """Return keys [rows, dim] of unit length for hidden states [rows, hidden]."""
        z = (states.float().cpu() - self.centre) / self.spread
        return torch.nn.functional.normalize(z @ self.axes, dim=-1)


@dataclass(frozen=True)
class HiddenStateIndex:
    """Search index over the hidden states of a datastore. keys: float16 [tokens, dim], zeros for a
    document's first token; graph: the approximate HNSW index, or None."""

    keys: np.ndarray
    frame: KeyProjection
    graph: Any = None

    @property
    def how(self) -> str:
        """Name of the search in use: "exact" or "faiss HNSW"."""
        return "exact" if self.graph is None else "faiss HNSW"

    def nearest(self, array: SuffixArray, token: int, key: Tensor, count: int) -> list[tuple[int, float]]:
        """Return (position, cosine similarity) of up to ``count`` occurrences of ``token`` whose keys are
        nearest to ``key`` [dim]."""
        low, high = array.range([token])
        if low == high:
            return []
        if self.graph is not None and high - low > FEW:
            likeness, places = self.graph.search(key[None].numpy(), count * SPARE)
            found = [
                (int(p), float(x))
                for p, x in zip(places[0], likeness[0])
                if p >= 0 and int(array.tokens[p]) == token
            ]
            return found[:count]
        places = np.sort(np.asarray(array.order[low : high : -(-(high - low) // FEW)]))
        likeness = torch.from_numpy(self.keys[places].astype(np.float32)) @ key
        best = likeness.topk(min(count, len(places)))
        return [(int(places[i]), x) for i, x in zip(best.indices.tolist(), best.values.tolist())]


def open_dense(folder: Path, tokens: int) -> HiddenStateIndex | None:
    """Open the hidden-state index of a datastore folder; None if it has none. tokens: number of tokens of
    the datastore. Raises ValueError if the files are damaged."""
    if not (folder / "keys.npy").is_file():
        return None
    keys = np.load(folder / "keys.npy", mmap_mode="r", allow_pickle=False)
    with np.load(folder / "frame.npz", allow_pickle=False) as frame:
        centre, spread, axes = (torch.from_numpy(frame[name]) for name in ("centre", "spread", "axes"))
    if (
        keys.dtype != np.float16
        or keys.ndim != 2
        or len(keys) != tokens
        or axes.shape != (len(centre), keys.shape[1])
    ):
        raise ValueError("its states are not those of its tokens")
    return HiddenStateIndex(
        keys, KeyProjection(centre, spread, axes), open_hnsw_index(folder / "keys.faiss", tokens)
    )


def open_hnsw_index(path: Path, tokens: int) -> Any:
    """Open a memory-mapped HNSW index of faiss; None if the file is missing or faiss is not installed.
    Raises ValueError if it is damaged."""
    faiss = import_faiss()
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


def build_hnsw_index(keys: np.ndarray) -> Any:
    """Build an HNSW graph (approximate nearest-neighbour index of faiss, inner product) over keys [tokens,
    dim]; None without faiss."""
    faiss = import_faiss()
    if faiss is None:
        return None
    graph = faiss.IndexHNSWFlat(keys.shape[1], 16, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = 64
    graph.hnsw.efSearch = EFFORT
    graph.add(np.ascontiguousarray(keys, dtype=np.float32))
    return graph


def import_faiss() -> Any:
    """Return the module faiss; None if it is not installed."""
    try:
        import faiss
    except ImportError:
        return None
    return faiss


def target_fingerprint(target: Any) -> list[float]:
    """Return a fingerprint of a target's weights: logits of its output matrix on some of its embeddings."""
    ids = list(range(0, target.vocab, max(1, target.vocab // 8)))[
        :8
    ]  # spread out: the first tokens are rarely trained
    return [
        round(float(x), 4) for x in target.head(target.embed(ids)).detach().float().cpu()[:, ids].flatten()
    ]


def is_made_for(fingerprint: Any, target: Any) -> bool:
    """Return whether a fingerprint belongs to this target. Rounding differences of processors, layouts and
    half precision are tolerated."""
    now = np.array(target_fingerprint(target))
    if (
        not isinstance(fingerprint, list)
        or len(fingerprint) != len(now)
        or not all(type(x) in (int, float) for x in fingerprint)
    ):
        return False
    return bool(
        np.abs(np.array(fingerprint, float) - now).max(initial=0) <= NEAR * np.abs(now).max(initial=0)
    )
