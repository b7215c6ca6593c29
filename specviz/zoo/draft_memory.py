"""The memory that a method takes besides its target: the "memory tax" of speculative decoding.

Weights are counted as they are stored, caches and indexes as they are in use at the end of a run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..models.row_cache import RowCache

WEIGHTS = ("*.safetensors", "*.gguf", "*.npy", "*.bin")  # files of models, heads and datastores
OURS = "specviz."
DEEPEST = 12  # levels of objects that are looked through
MOST_OBJECTS = 200_000


def stored_bytes(folders: Iterable[Path]) -> int:
    """Return the bytes of all weights and datastores in these folders, each folder once."""
    files = {path.resolve() for folder in set(folders) for kind in WEIGHTS for path in folder.glob(kind)}
    return sum(path.stat().st_size for path in files)


def kv_bytes(model: Any) -> int:
    """Return the bytes of a model's KV cache, or of its recurrent states, for the tokens that it holds; 0
    if it does not tell. model: a target, or a draft model around one."""
    model = getattr(model, "_model", model)
    if "kv" in model.capabilities:
        return sum(part.nbytes for part in model.kv(0)) * model.layers if model.cached_tokens else 0
    return int(model.state_bytes) if "state:decay" in model.capabilities else 0


def run_memory(kit: Any, drafter: Any) -> dict[str, int]:
    """Return {weights, cache, index, target_cache}, in bytes, for a run before its models are closed.

    weights: of the draft models, heads and datastores that the run has opened, as stored; a second copy of
    the target shares its weights and counts 0. cache: KV caches besides the target's. index: data
    structures that lookups search. target_cache: the target's KV cache, for comparison."""
    objects = list(_objects(drafter))
    rows = [one for one in objects if isinstance(one, RowCache)]
    cache = sum(kv_bytes(model) for model in kit.opened[1:])
    cache += sum(one.kv().nbytes for one in rows if one.count)
    indexes = [one for one in objects if type(one).__module__.startswith(OURS + "indexes.")]
    return {
        "weights": stored_bytes(kit.weight_folders),
        "cache": cache,
        "index": sum(
            _container_bytes(list(vars(one).values())) for one in indexes if hasattr(one, "__dict__")
        ),
        "target_cache": kv_bytes(kit.target),
    }


def _objects(root: Any) -> Iterator[Any]:
    """Yield the objects of this project that a drafter holds, each once; not the networks and targets."""
    seen: set[int] = set()
    queue: list[tuple[Any, int]] = [(root, 0)]
    while queue:
        one, depth = queue.pop()
        if id(one) in seen or depth > DEEPEST or isinstance(one, (torch.nn.Module, torch.Tensor)):
            continue
        seen.add(id(one))
        if isinstance(one, (list, tuple)) and len(one) <= 64:
            queue += [(part, depth + 1) for part in one]
        elif isinstance(one, dict) and len(one) <= 64:
            queue += [(part, depth + 1) for part in one.values()]
        elif type(one).__module__.startswith(OURS) and not hasattr(one, "cached_tokens"):
            yield one
            queue += [(part, depth + 1) for part in getattr(one, "__dict__", {}).values()]


def _container_bytes(parts: list[Any]) -> int:
    """Return the bytes of lists, dicts and arrays, nested ones included, without the numbers in them."""
    total, seen = 0, set()
    while parts and len(seen) < MOST_OBJECTS:
        one = parts.pop()
        if isinstance(one, np.ndarray):
            total += one.nbytes
        elif isinstance(one, (list, tuple, dict, set)) and id(one) not in seen:
            seen.add(id(one))
            total += sys.getsizeof(one)
            inner = one.values() if isinstance(one, dict) else one
            first = next(iter(inner), None)
            if isinstance(first, (list, tuple, dict, set)) or first is None:
                parts += inner
    return total
