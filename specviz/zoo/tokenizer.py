"""Open the tokenizer of a folder, find the end tokens of an answer, and compare the vocabularies of two
models."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..checkpoints.errors import about_files
from .registry import ZooError
from .tokenizer_bounds import tokenizer_problem

PLAIN_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")  # everything is in tokenizer.json


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Read a JSON object in a checkpoint folder; empty if there is no such file. Raises ZooError."""
    try:
        found = json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        raise ZooError(f"{name} of {folder.name} cannot be read.", "tokenizer.read") from None
    if not isinstance(found, dict):
        raise ZooError(f"{name} of {folder.name} is not a JSON object.", "tokenizer.not_object")
    return found


@lru_cache(maxsize=8)
def open_tokenizer(folder: Path) -> Any:
    """Open a checkpoint folder's tokenizer without running any code of the folder. Raises ZooError."""
    from ..models.pretrained import (
        refuse_code_prompts,
    )  # imports torch, which the page's first load does without

    plain = (
        read_json(folder, "tokenizer_config.json").get("tokenizer_class") in PLAIN_CLASSES
        and (folder / "tokenizer.json").is_file()
    )
    problem = tokenizer_problem(read_json(folder, "tokenizer.json"))
    if problem:
        raise ZooError(f"The tokenizer of {folder.name} is refused: {problem}.", "tokenizer.bounds")
    try:
        if plain:  # the automatic class would take seconds to find this one
            from transformers import PreTrainedTokenizerFast as Tokenizer
        else:
            from transformers import AutoTokenizer as Tokenizer
        refuse_code_prompts()
        return Tokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each kind of tokenizer breaks in its own way
        raise ZooError(
            f"{folder.name} has no tokenizer that can be read ({about_files(folder, error)[:200]}).",
            "tokenizer.missing",
        ) from None


def end_tokens(folder: Path, tokenizer: Any) -> frozenset[int]:
    """Return the token ids that end an answer: those of generation_config.json (else config.json) and the
    tokenizer's own."""
    found = read_json(folder, "generation_config.json").get("eos_token_id")
    if found is None:
        found = read_json(folder, "config.json").get("eos_token_id")
    ends = found if isinstance(found, list) else [found]
    return frozenset(i for i in [*ends, tokenizer.eos_token_id] if type(i) is int)


def generation_defaults(folder: Path) -> dict[str, Any]:
    """Return the sampling settings that a model's generation_config.json recommends, with the names of
    request fields; empty if there is no such file.

    Values of the wrong type are ignored. ``do_sample: false`` is temperature 0.
    """
    found = read_json(folder, "generation_config.json")
    out: dict[str, Any] = {
        name: found[name]
        for name in ("temperature", "top_p", "min_p", "repetition_penalty")
        if type(found.get(name)) in (int, float)
    }
    if type(found.get("top_k")) is int:
        out["top_k"] = found["top_k"]
    return out | ({"temperature": 0.0} if found.get("do_sample") is False else {})


def same_vocabulary(target: Path, draft: Path, same_size: bool) -> bool:
    """Return whether a draft's ids stand for the same tokens as the target's (see ``different_tokens``). If
    the draft has no tokenizer, only the vocabulary sizes are compared."""
    first, second = target / "tokenizer.json", draft / "tokenizer.json"
    if not second.is_file() and not (draft / "tokenizer_config.json").is_file():
        return same_size
    if first.is_file() and second.is_file() and first.read_bytes() == second.read_bytes():
        return True
    return not different_tokens(target, draft)


def different_tokens(target: Path, draft: Path) -> list[str]:
    """Return the tokens to which two tokenizers give different ids, as "id: token, token". Ids that both
    reserve for control tokens may differ, and a control token may be missing in one: if a draft proposes
    it, it is only rejected. Raises ZooError."""
    ours, theirs = (_by_id(open_tokenizer(folder)) for folder in (target, draft))
    found = [
        i
        for i in sorted(ours.keys() | theirs.keys())
        if ours.get(i, (None, True)) != theirs.get(i, (None, True))
    ]
    found = [i for i in found if not (ours.get(i, (None, True))[1] and theirs.get(i, (None, True))[1])]
    return [f"{i}: {ours.get(i, ('none', 1))[0]!r}, {theirs.get(i, ('none', 1))[0]!r}" for i in found]


def _by_id(tokenizer: Any) -> dict[int, tuple[str, bool]]:
    """Return the token of each id, and whether it is a control token."""
    control = {
        int(i) for i, token in tokenizer.added_tokens_decoder.items() if getattr(token, "special", False)
    }
    return {i: (token, i in control) for token, i in tokenizer.get_vocab().items()}


def vocabulary_fingerprint(folder: Path) -> str | None:
    """Return the fingerprint of a folder's vocabulary without transformers; None without a readable
    tokenizer.json."""
    from tokenizers import Tokenizer

    from ..indexes.store import vocabulary_mark

    try:
        return vocabulary_mark(Tokenizer.from_file(str(folder / "tokenizer.json")))
    except Exception:  # the package raises its own
        return None
