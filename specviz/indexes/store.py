"""A datastore on disk: tokens and their suffix array, memory-mapped, for retrieval drafters (REST, He et
al. 2311.08252).

A folder holds ``store.json`` (metadata), ``tokens.npy`` and ``order.npy``. It belongs to one tokenizer:
``mark`` is the fingerprint of its vocabulary. `python -m specviz.training.datastore` builds one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ..core.errors import CodedError
from .nearest import HiddenStateIndex, open_dense
from .suffix_array import SuffixArray

FORMAT = "specviz-store/1"
HOW = "python -m specviz.training.datastore"
HOW_TO = {"dense": f"{HOW} --dense --ship"}  # by datastore, where the command differs


class StoreError(CodedError, ValueError):
    """Error: a datastore cannot be used. The message is one sentence for the user."""


@dataclass(frozen=True)
class Store:
    """A datastore of token sequences in a folder, opened with memory mapping.

    name: used as origin of draft tokens; array: suffix array over its tokens; facts: of ``store.json``
    (tokens, documents, bytes, build_seconds, source, mark); dense: index over the hidden states that
    predicted the tokens, if the datastore was built with them.
    """

    name: str
    array: SuffixArray
    facts: dict[str, Any] = field(default_factory=dict)
    dense: HiddenStateIndex | None = None

    @classmethod
    def open(cls, folder: str | Path, mark: str | None = None) -> Store:
        """Open a datastore, memory-mapped. mark: fingerprint of the vocabulary it must have. Raises
        StoreError if it is missing, damaged, or built for another vocabulary."""
        folder = Path(folder)
        if not (folder / "store.json").is_file():
            raise StoreError(
                f"There is no datastore in {folder}: build one with `{HOW}`.", "datastore.missing"
            )
        try:
            facts = json.loads((folder / "store.json").read_text(encoding="utf-8"))
            if not isinstance(facts, dict) or facts.get("format") != FORMAT:
                raise ValueError("its store.json is not of this kind")
            if mark is not None and facts.get("mark") != mark:
                raise StoreError(
                    f"The datastore {folder.name} was built for another tokenizer: build it again with `{HOW}`.",
                    "datastore.tokenizer",
                )
            tokens, order = (
                np.load(folder / f"{part}.npy", mmap_mode="r", allow_pickle=False)
                for part in ("tokens", "order")
            )
            check(tokens, order, facts)
            return cls(
                str(facts["name"]),
                SuffixArray(tokens, order, int(facts["depth"])),
                facts,
                open_dense(folder, len(tokens)),
            )
        except StoreError:
            raise
        except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
            raise StoreError(
                f"The datastore {folder.name} is damaged ({error}): build it again with `{HOW}`.",
                "datastore.damaged",
            ) from error


def check(tokens: np.ndarray, order: np.ndarray, facts: dict[str, Any]) -> None:
    """Raise ValueError if a datastore's arrays do not match its metadata."""
    if (
        tokens.dtype != np.uint32
        or order.dtype != np.int32
        or tokens.ndim != 1
        or tokens.shape != order.shape
    ):
        raise ValueError("its arrays have the wrong shape")
    if len(tokens) != facts["tokens"] or not 1 <= int(facts["depth"]) <= 1024:
        raise ValueError("its arrays are not the ones its store.json describes")
    if len(order) and not (0 <= int(order.min()) and int(order.max()) < len(tokens)):
        raise ValueError("its suffix array points outside of its tokens")


def vocabulary_mark(tokenizer) -> str:
    """Return the fingerprint of a tokenizer's vocabulary: 16 hex digits."""
    text = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
