"""The tokenizer of a folder, quickly; which tokens end an answer; and whether two models speak the same tokens."""
from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..models.pretrained import ask_nothing
from .registry import ZooError

PLAIN_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")  # everything is in tokenizer.json


def read(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object of the folder; empty where there is no such file. Raises ZooError."""
    try:
        found = json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):  # the last: brackets nested by the thousand
        raise ZooError(f"{name} of {folder.name} cannot be read.") from None
    if not isinstance(found, dict):
        raise ZooError(f"{name} of {folder.name} is not a JSON object.")
    return found


@lru_cache(maxsize=8)
def open_tokenizer(folder: Path) -> Any:
    """The folder's own tokenizer, without running code of its own. Raises ZooError."""
    plain = read(folder, "tokenizer_config.json").get("tokenizer_class") in PLAIN_CLASSES and (folder / "tokenizer.json").is_file()
    try:
        if plain:  # the automatic class would take seconds to find this one
            from transformers import PreTrainedTokenizerFast as Tokenizer
        else:
            from transformers import AutoTokenizer as Tokenizer
        ask_nothing()
        return Tokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each kind of tokenizer breaks in its own way
        words = (str(error).splitlines() or [""])[0][:200]
        raise ZooError(f"{folder.name} has no tokenizer that can be read ({words or type(error).__name__}).") from None


def end_tokens(folder: Path, tokenizer: Any) -> frozenset[int]:
    """Ids that end an answer: those of generation_config.json (else config.json) and the tokenizer's own."""
    told = read(folder, "generation_config.json").get("eos_token_id")
    if told is None:
        told = read(folder, "config.json").get("eos_token_id")
    ends = told if isinstance(told, list) else [told]
    return frozenset(i for i in [*ends, tokenizer.eos_token_id] if type(i) is int)


def same_vocabulary(target: Path, draft: Path, same_size: bool) -> bool:
    """Whether a draft's ids mean the same tokens. A draft without a tokenizer is taken at its size."""
    ours, theirs = target / "tokenizer.json", draft / "tokenizer.json"
    if not theirs.is_file() and not (draft / "tokenizer_config.json").is_file():
        return same_size
    if ours.is_file() and theirs.is_file() and ours.read_bytes() == theirs.read_bytes():
        return True
    return open_tokenizer(target).get_vocab() == open_tokenizer(draft).get_vocab()
