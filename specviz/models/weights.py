"""Reading a Hugging Face folder without transformers: config.json and safetensors, whole or in shards.

What is wrong with a checkpoint is said in one sentence (ModelError), before anything is run on it.
"""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from . import mx


class ModelError(ValueError):
    """A checkpoint cannot be used; the message is a sentence for people."""


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of the folder. Raises ModelError when it is missing or is not a JSON object."""
    try:
        found = json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{folder.name} has no {name}") from None
    except RecursionError:
        raise ModelError(f"{name} of {folder.name} is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{name} of {folder.name} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ModelError(f"{name} of {folder.name} is not a JSON object")
    return found


class Weights:
    """The tensors of a folder, read when asked for; ``count`` numbers were read so far."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype):
        self._folder, self._device, self._dtype = folder, device, dtype
        where = self._index()
        self._scales = {name: shard for name, shard in where.items() if name.endswith(mx.SCALE) and name.removesuffix(mx.SCALE) in where}
        self._where = {name: shard for name, shard in where.items() if name not in self._scales}
        self._open: dict[str, Any] = {}
        self.count = 0

    def _index(self) -> dict[str, str]:
        if (self._folder / "model.safetensors.index.json").exists():
            where = read_json(self._folder, "model.safetensors.index.json").get("weight_map")
            if not isinstance(where, dict) or not all(isinstance(shard, str) for shard in where.values()):
                raise ModelError(f"model.safetensors.index.json of {self._folder.name} has no weight_map")
            missing = sorted({shard for shard in where.values() if not (self._folder / shard).is_file()})
            if missing:
                raise ModelError(f"{self._folder.name} lacks the shard {', '.join(missing)}")
            if any(Path(shard).name != shard for shard in where.values()):
                raise ModelError(f"the index of {self._folder.name} points outside its folder")
            return where
        if not (self._folder / "model.safetensors").is_file():
            raise ModelError(f"{self._folder.name} has no model.safetensors")
        return dict.fromkeys(self._file("model.safetensors").keys(), "model.safetensors")

    def _file(self, shard: str):
        try:
            return safe_open(self._folder / shard, framework="pt")
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{shard} of {self._folder.name} is cut short or is not safetensors ({error})") from None

    def headers(self) -> dict[str, dict[str, Any]]:
        """What the files say of their tensors without reading them: name -> dtype, shape, data_offsets."""
        found: dict[str, dict[str, Any]] = {}
        for shard in sorted(set(self._where.values())):
            self._file(shard)  # safetensors checks the header; what follows only repeats it
            with open(self._folder / shard, "rb") as file:
                found |= json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return {name: one for name, one in found.items() if name in self._where}

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def get(self, name: str, *shape: int) -> Tensor:
        """The tensor, on the device and in the working type. Raises ModelError: missing, another shape, or not numbers."""
        if name not in self._where:
            raise ModelError(f"{self._folder.name} lacks the weight {name}")
        tensor = self._stored(self._where[name], name)
        if tuple(tensor.shape) != shape:
            raise ModelError(f"{name} of {self._folder.name} has shape {tuple(tensor.shape)}; its config says {shape}")
        tensor = self._eight_bits(name, tensor).to(self._device, self._dtype)
        self.count += tensor.numel()
        if not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{name} of {self._folder.name} holds values that are not numbers")
        return tensor

    def _stored(self, shard: str, name: str) -> Tensor:
        if shard not in self._open:
            self._open[shard] = self._file(shard)
        try:
            return self._open[shard].get_tensor(name)
        except SafetensorError:
            raise ModelError(f"{shard} of {self._folder.name} lacks the weight {name} that its index names") from None

    def _eight_bits(self, name: str, tensor: Tensor) -> Tensor:
        """The numbers of a tensor that lies in eight bits beside its scales (mx.py); any other as it is."""
        if name + mx.SCALE not in self._scales:
            return tensor
        scales = self._stored(self._scales[name + mx.SCALE], name + mx.SCALE)
        blocks = (*tensor.shape[:-1], -(-tensor.shape[-1] // mx.BLOCK)) if tensor.dim() else ()
        if (tensor.dtype, scales.dtype) != (torch.int8, torch.uint8) or tuple(scales.shape) != blocks:
            raise ModelError(f"{name} of {self._folder.name} has scales beside it, and together they are not weights in eight bits as "
                             "they are written here")
        return mx.unpacked(tensor, scales)

    def maybe(self, name: str, *shape: int) -> Tensor | None:
        return self.get(name, *shape) if name in self else None
