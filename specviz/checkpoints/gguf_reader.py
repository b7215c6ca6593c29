"""Read GGUF files (llama.cpp's format, versions 2 and 3): metadata and tensors, decoded to float32.

A file may be split into numbered parts (``model.gguf.part-01-of-13``, by split.py); they are joined in
memory. A model may lie in several files (``model-00001-of-00003.gguf``, by llama.cpp's llama-gguf-split): the
first holds the metadata, each holds some of the tensors. The header is parsed here, because the reader of the
package ``gguf`` trusts the lengths and counts that a file states, and takes 5 s for a vocabulary of 49,152
tokens. Blocks are decoded by the package. Every length is checked against the file's size before anything is
allocated. Format: github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import ModelError
from .split import parts_of, pieces_of

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_KEYS = 2**12  # limits of a file: entries of the metadata
MOST_TENSORS = 2**16  # tensors
MOST_DIMENSIONS = 4  # dimensions of a tensor
LONGEST_NAME = 2**8  # bytes of a name
NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}  # struct's letters by value type
STRING = 8  # types of values
ARRAY = 9
SLICE = 2**14  # blocks that are decoded at a time


@dataclass(frozen=True)
class TensorInfo:
    """The header entry of a tensor in a GGUF file.

    shape: as in torch (rows first); kind: the block type, a GGMLQuantizationType; start: offset of the
    first byte; size: number of bytes; data: bytes of the file that holds it.
    """

    shape: tuple[int, ...]
    kind: Any
    start: int
    size: int
    data: np.ndarray


def gguf_in(folder: Path) -> Path | None:
    """Return the path of the GGUF file of a folder: its joined name if it is split into parts, the first piece
    of a model in several files; None if there is none. Raises ModelError if there are two."""
    found = {*folder.glob("*.gguf"), *(folder / name for name in parts_of(folder, ".gguf"))}
    found = sorted({pieces_of(path)[0] for path in found})
    if len(found) > 1:
        raise ModelError(
            f"{folder.name} has {len(found)} GGUF files; keep one model",
            "gguf.several",
        )
    return found[0] if found else None


def gguf_weights(folder: Path) -> Path | None:
    """Return the GGUF file from which a folder's weights are loaded; None with safetensors beside it.
    Raises ModelError as ``gguf_in``."""
    return None if any(folder.glob("*.safetensors*")) else gguf_in(folder)


class GGUFFile:
    """A parsed GGUF file: ``metadata`` by key, ``tensors`` (TensorInfo) by name. Of a model in several files
    the name of any opens all of them. Raises ModelError for a broken or unknown file."""

    def __init__(self, path: Path):
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        pieces = pieces_of(path)
        for number, piece in enumerate(pieces):
            self._open(piece)
            self._check_piece(number, len(pieces))
        self.name = pieces[0].name

    def _open(self, path: Path) -> None:
        """Read the header of one file."""
        self.name = path.name
        self._data = self._map(path)
        self._view, self._at = self._data.data, 0
        self._own: dict[str, Any] = {}  # metadata of this file
        try:
            self._parse()
        except UnicodeDecodeError:
            raise ModelError(f"{self.name} holds a name or a text that is not UTF-8", "gguf.utf8") from None
        self.metadata = self._own | self.metadata

    def _check_piece(self, number: int, count: int) -> None:
        """Check what a file says of its place among the files of a model."""
        said = self._own.get("split.no", 0), self._own.get("split.count", 1)
        if said[1] not in (0, 1) and count == 1:
            raise ModelError(
                f"{self.name} is one of {str(said[1])[:40]} pieces of a model; give each the name that "
                "llama-gguf-split gave it, and keep them in one folder",
                "gguf.pieces",
            )
        if count > 1 and said != (number, count):
            raise ModelError(
                f"{self.name} says that it is piece {str(said[0])[:40]} of {str(said[1])[:40]}, counted from 0; "
                f"its name says {number} of {count}",
                "gguf.piece_number",
            )

    def _map(self, path: Path) -> np.ndarray:
        """Return the file's bytes: memory-mapped, or joined from parts and checked against the checksum
        next to them."""
        try:
            if path.is_file():
                if not path.stat().st_size:
                    raise ModelError(f"{self.name} is empty", "gguf.empty")
                return np.memmap(path, np.uint8, "r")
            parts = parts_of(path.parent, ".gguf").get(path.name)
            if not parts:
                raise ModelError(f"{path.parent.name} has no {path.name}", "gguf.missing")
            data = np.empty(sum(part.stat().st_size for part in parts), np.uint8)
            view, at = data.data, 0
            for part in parts:
                with part.open("rb") as file:
                    at += file.readinto(view[at : at + part.stat().st_size])
            checksum = path.with_name(f"{path.name}.sha256")
            wanted = checksum.read_text("ascii").split()[0] if checksum.is_file() else None
        except (OSError, UnicodeDecodeError, IndexError) as error:
            raise ModelError(
                f"{self.name} cannot be read: {getattr(error, 'strerror', None) or 'its checksum is no text'}",
                "gguf.read",
            ) from None
        if wanted is not None and hashlib.sha256(data.data).hexdigest() != wanted:
            raise ModelError(
                f"the parts of {self.name} do not add up to the published file: its sha256 differs",
                "gguf.digest",
            )
        return data

    # --- the header --------------------------------------------------------------------------------------------------------
    def _parse(self) -> None:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        if bytes(self._view[:4]) != MAGIC:
            raise ModelError(f"{self.name} is not a GGUF file", "gguf.not_gguf")
        self._at = 4
        version = self._number("I")
        if version not in VERSIONS:
            big = version and not version & 0xFFFF
            raise ModelError(
                f"{self.name} is {'big-endian' if big else f'version {version} of GGUF'}; versions 2 and 3, "
                "little-endian, are read",
                "gguf.version",
            )
        tensors, keys = self._count(MOST_TENSORS, "tensors"), self._count(MOST_KEYS, "metadata keys")
        for _ in range(keys):
            key = self._text(LONGEST_NAME)
            if key in self._own:
                raise ModelError(f"{self.name} gives {key!r} twice", "gguf.twice")
            self._own[key] = self._value(self._number("I"), key)
        infos = {}
        for _ in range(tensors):
            name = self._text(LONGEST_NAME)
            dimensions = self._number("I")
            if name in infos or name in self.tensors or not 0 < dimensions <= MOST_DIMENSIONS:
                raise ModelError(
                    f"{self.name} describes its tensor {name[:60]!r} in a way that cannot be read",
                    "gguf.tensor_entry",
                )
            infos[name] = [self._number("Q") for _ in range(dimensions)], self._number("I"), self._number("Q")
        align = self._own.get("general.alignment", 32)
        if type(align) is not int or not 0 < align <= 2**16 or align & (align - 1):
            raise ModelError(
                f"general.alignment of {self.name} is {str(align)[:40]}, which is no power of two",
                "gguf.alignment",
            )
        base = -(-self._at // align) * align
        for name, (shape, number, offset) in infos.items():
            try:
                kind = GGMLQuantizationType(number)
            except ValueError:
                raise ModelError(
                    f"{name} of {self.name} has blocks of the unknown type {number}", "gguf.block_type"
                ) from None
            block, width = GGML_QUANT_SIZES[kind]
            if not all(0 < one < 2**40 for one in shape) or shape[0] % block or offset % align:
                raise ModelError(
                    f"{name} of {self.name} has shape {tuple(reversed(shape))}, which {kind.name} blocks cannot have",
                    "gguf.shape",
                )
            size = prod(shape) // block * width
            if base + offset + size > len(self._data):
                raise ModelError(
                    f"{self.name} is cut short: {name} would end at byte {base + offset + size:,} of {len(self._data):,}",
                    "gguf.cut_short",
                )
            self.tensors[name] = TensorInfo(tuple(reversed(shape)), kind, base + offset, size, self._data)

    def _take(self, size: int) -> memoryview:
        """Return the next bytes of the header."""
        if size > len(self._data) - self._at:
            raise ModelError(f"{self.name} is cut short in its header, or broken there", "gguf.header")
        self._at += size
        return self._view[self._at - size : self._at]

    def _number(self, letter: str) -> Any:
        return struct.unpack(f"<{letter}", self._take(struct.calcsize(f"<{letter}")))[0]

    def _count(self, most: int, of: str) -> int:
        found = self._number("Q")
        if found > most:
            raise ModelError(
                f"{self.name} claims {found:,} {of}; {most:,} are the most that are read", "gguf.claims"
            )
        return found

    def _text(self, longest: int | None = None) -> str:
        size = self._number("Q")
        if longest is not None and size > longest:
            raise ModelError(
                f"{self.name} has a name of {size:,} bytes in its header; {longest} are the most that are read",
                "gguf.long_name",
            )
        return str(self._take(size), "utf-8")

    def _value(self, kind: int, key: str) -> Any:
        if kind in NUMBERS:
            return self._number(NUMBERS[kind])
        if kind == STRING:
            return self._text()
        inner, count = (self._number("I"), self._number("Q")) if kind == ARRAY else (None, 0)
        if inner in NUMBERS:
            letter = NUMBERS[inner]
            return list(struct.unpack(f"<{count}{letter}", self._take(count * struct.calcsize(f"<{letter}"))))
        if inner != STRING:
            raise ModelError(
                f"the metadata key {key[:60]!r} of {self.name} has a value of an unknown type",
                "gguf.value_type",
            )
        if count * 8 > len(self._data) - self._at:
            raise ModelError(
                f"{self.name} claims {count:,} texts under {key[:60]!r}, more than it can hold", "gguf.texts"
            )
        return self._texts(count)

    def _texts(self, count: int) -> list[str]:
        """Return the next strings. A tokenizer has a hundred thousand, so this is one loop without a call
        for each."""
        size_at = struct.Struct("<Q").unpack_from
        data = self._view
        at = self._at
        end = len(self._data)
        texts = []
        for _ in range(count):
            start = at + 8
            at = start + size_at(data, at)[0] if start <= end else end + 1
            if at > end:
                raise ModelError(f"{self.name} is cut short in its header, or broken there", "gguf.header")
            texts.append(str(data[start:at], "utf-8"))
        self._at = at
        return texts

    # --- tensors -----------------------------------------------------------------------------------------------------------
    def tensor(self, name: str, index: int | None = None) -> Tensor:
        """Return a tensor, decoded to float32, or with an ``index`` this entry of its first dimension. Raises
        ModelError for block types that the package gguf cannot decode."""
        from gguf import GGML_QUANT_SIZES
        from gguf.quants import dequantize

        info = self.tensors[name]
        shape, start, size = info.shape, info.start, info.size
        if index is not None:
            size //= shape[0]
            start += index * size
            shape = shape[1:]
        out = np.empty(prod(shape), np.float32)
        numbers, width = GGML_QUANT_SIZES[info.kind]
        data = info.data[start : start + size].view(np.ndarray).reshape(-1, width)
        try:  # in slices of one row each: the package goes through 16 rows at a time, which is slow for short ones
            for at in range(0, len(data), SLICE):
                out[at * numbers : (at + SLICE) * numbers] = dequantize(
                    data[at : at + SLICE].reshape(1, -1), info.kind
                )[0]
        except NotImplementedError:
            raise ModelError(
                f"{name} of {self.name} has {info.kind.name} blocks, which the package gguf cannot decode",
                "gguf.block_decoder",
            ) from None
        return torch.from_numpy(out).view(shape)
