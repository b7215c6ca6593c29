"""Read a checkpoint folder without transformers: config.json, and weights from safetensors (whole or in
shards) or a GGUF file.

A checkpoint that cannot be used raises ModelError before anything is run on it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from . import mx
from .errors import ModelError
from .gguf_names import GGUFTensors
from .gguf_reader import GGUFFile, gguf_weights

DERIVED = re.compile(
    r"(rotary_emb\.inv_freq|attn\.(masked_)?bias|attention\.(masked_)?bias|position_ids)$"
)  # stored, computed anyway
WHOLE = "model.safetensors"  # file of all tensors
INDEX = "model.safetensors.index.json"  # file that names the shard of each tensor


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Return a JSON file of the folder. Raises ModelError if it is missing or is not a JSON object."""
    try:
        found = json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{folder.name} has no {name}", "config.missing") from None
    except RecursionError:
        raise ModelError(f"{name} of {folder.name} is nested too deeply", "config.depth") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{name} of {folder.name} cannot be read: {error}", "config.read") from None
    if not isinstance(found, dict):
        raise ModelError(f"{name} of {folder.name} is not a JSON object", "config.not_object")
    return found


Item = TypeVar("Item")
Part = TypeVar("Part")


def read_ahead(read: Callable[[Item], Part], items: Iterable[Item]) -> Iterator[Part]:
    """Yield read(item) for each item, in order. The next is read in a second thread while the caller uses
    one, so at most two are held. An error of ``read`` is raised where its result would be yielded."""

    def read_one(item: Item) -> Part:
        with torch.inference_mode():  # which a thread has for itself
            return read(item)

    with ThreadPoolExecutor(1) as reader:
        coming: Future[Part] | None = None
        for item in items:
            this, coming = coming, reader.submit(read_one, item)
            if this is not None:
                yield this.result()
        if coming is not None:
            yield coming.result()


class Weights:
    """The tensors of a checkpoint folder, read on demand; ``count`` is the number of values read so far.

    Files: model.safetensors, or the shards of model.safetensors.index.json, or else one GGUF file, whole or
    in parts.
    """

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype):
        self._folder = folder
        self._device = device
        self._dtype = dtype
        self._gguf = self._find_gguf()
        where = self._index() if self._gguf is None else dict.fromkeys(self._gguf.names, self._gguf.file.name)
        self._scales = {
            name: shard
            for name, shard in where.items()
            if name.endswith(mx.SCALE) and name.removesuffix(mx.SCALE) in where
        }
        self._where = {name: shard for name, shard in where.items() if name not in self._scales}
        self._open: dict[str, Any] = {}
        self._read: set[str] = set()
        self.count = 0

    def _find_gguf(self) -> GGUFTensors | None:
        """Return the tensors of the folder's GGUF file; None without one, or with safetensors next to it."""
        found = gguf_weights(self._folder)
        return None if found is None else GGUFTensors(GGUFFile(found))

    def _index(self) -> dict[str, str]:
        if (self._folder / INDEX).exists():
            where = read_json(self._folder, INDEX).get("weight_map")
            if not isinstance(where, dict) or not all(isinstance(shard, str) for shard in where.values()):
                raise ModelError(f"{INDEX} of {self._folder.name} has no weight_map", "checkpoint.index")
            missing = sorted({shard for shard in where.values() if not (self._folder / shard).is_file()})
            if missing:
                raise ModelError(
                    f"{self._folder.name} lacks the shard {', '.join(missing)}", "checkpoint.lacks_shard"
                )
            if any(Path(shard).name != shard for shard in where.values()):
                raise ModelError(
                    f"the index of {self._folder.name} points outside its folder", "checkpoint.outside"
                )
            return where
        if not (self._folder / WHOLE).is_file():
            raise ModelError(f"{self._folder.name} has no {WHOLE}", "checkpoint.missing")
        return dict.fromkeys(self._file(WHOLE).keys(), WHOLE)

    def _file(self, shard: str):
        try:
            return safe_open(self._folder / shard, framework="pt")
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"{shard} of {self._folder.name} is cut short or is not safetensors ({error})",
                "checkpoint.cut_short",
            ) from None

    def headers(self) -> dict[str, dict[str, Any]]:
        """Return name -> {dtype, shape, data_offsets} of all tensors, without reading them. Tensors of a
        GGUF file, and those in MXINT8, count as decoded to F32."""
        found: dict[str, dict[str, Any]] = {}
        if self._gguf is not None:
            return {
                name: {"dtype": "F32", "shape": list(shape), "data_offsets": [0, 4 * prod(shape)]}
                for name in self._where
                for shape in [self._gguf.shape(name)]
            }
        for shard in sorted(set(self._where.values())):
            self._file(shard)  # safetensors checks the header; what follows only repeats it
            with (self._folder / shard).open("rb") as file:
                found |= json.loads(file.read(int.from_bytes(file.read(8), "little")))
        decoded = {
            name: {**one, "dtype": "F32"} for name, one in found.items() if name + mx.SCALE in self._scales
        }
        return {name: decoded.get(name, one) for name, one in found.items() if name in self._where}

    @property
    def names(self) -> frozenset[str]:
        """All tensor names."""
        return frozenset(self._where)

    def check_all_read(self) -> None:
        """Raise ModelError if the files hold a weight that was not read: the model that was trained may
        have used it."""
        unread = sorted(name for name in self.names - self._read if not DERIVED.search(name))
        if unread:
            raise ModelError(
                f"{self._folder.name} holds the weight {unread[0][:120]}, which this forward does not read",
                "checkpoint.unread_weight",
            )

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def get(self, name: str, *shape: int) -> Tensor:
        """Return the tensor on the device and in the working data type. Raises ModelError if it is missing,
        has another shape, or holds values that are not finite."""
        if name not in self._where:
            raise ModelError(f"{self._folder.name} lacks the weight {name}", "checkpoint.lacks_weight")
        self._read.add(name)
        tensor = self._stored(self._where[name], name)
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{name} of {self._folder.name} has shape {tuple(tensor.shape)}; its config says {shape}",
                "checkpoint.shape",
            )
        tensor = self._dequantise(name, tensor).to(self._device, self._dtype)
        self.count += tensor.numel()
        if not bool(torch.isfinite(tensor.sum())) and not bool(
            torch.isfinite(tensor).all()
        ):  # the sum alone is three times as fast
            raise ModelError(
                f"{name} of {self._folder.name} holds values that are not numbers", "checkpoint.not_numbers"
            )
        return tensor

    def _stored(self, shard: str, name: str) -> Tensor:
        if self._gguf is not None:
            return self._gguf.get(name)
        if shard not in self._open:
            self._open[shard] = self._file(shard)
        try:
            return self._open[shard].get_tensor(name)
        except SafetensorError:
            raise ModelError(
                f"{shard} of {self._folder.name} lacks the weight {name} that its index names",
                "checkpoint.lacks_indexed",
            ) from None

    def _dequantise(self, name: str, tensor: Tensor) -> Tensor:
        """Return the values of a tensor stored as int8 with scales (mx.py); any other tensor unchanged."""
        if name + mx.SCALE not in self._scales:
            return tensor
        scales = self._stored(self._scales[name + mx.SCALE], name + mx.SCALE)
        blocks = (*tensor.shape[:-1], -(-tensor.shape[-1] // mx.BLOCK)) if tensor.dim() else ()
        if (tensor.dtype, scales.dtype) != (torch.int8, torch.uint8) or tuple(scales.shape) != blocks:
            raise ModelError(
                f"{name} of {self._folder.name} is stored with scales, and together they are not weights in the MXINT8 "
                "format that is read here",
                "checkpoint.scales",
            )
        return mx.dequantise_mxint8(tensor, scales)

    def get_optional(self, name: str, *shape: int) -> Tensor | None:
        """Return the tensor as ``get`` does; None if the files do not have it."""
        return self.get(name, *shape) if name in self else None


class ScaledWeights:
    """Weights of which some are multiplied by constants when they are read, so that a forward pass need not
    multiply (muP multipliers).

    factors: by tensor name, a number, or one number per row [rows].
    """

    def __init__(self, weights: Weights, factors: dict[str, float | Tensor]):
        self._weights, self._factors = weights, factors

    def get(self, name: str, *shape: int) -> Tensor:
        """Return the tensor as ``Weights.get`` does, multiplied by its factor."""
        tensor, factor = self._weights.get(name, *shape), self._factors.get(name, 1.0)
        if isinstance(factor, Tensor):
            factor = factor.to(tensor).view(-1, *[1] * (tensor.dim() - 1))
        return tensor * factor

    def get_optional(self, name: str, *shape: int) -> Tensor | None:
        """Return the tensor as ``get`` does; None if the files do not have it."""
        return self.get(name, *shape) if name in self._weights else None
