"""Check from its files whether a model can be used beside a target, so that no method is offered that fails
when it is run."""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path

import torch

from ..checkpoints.errors import about_files, shown
from ..checkpoints.split import gguf_digest, joined_folder
from ..checkpoints.weights import ModelError, Weights
from .backends import first_supporting_forward
from .other_vocabulary import ROLE
from .registry import ZooError, register
from .tokenizer import different_tokens, open_tokenizer, read_json, same_vocabulary
from .trained_heads import hidden_and_vocab_size

log = logging.getLogger(__name__)
FILES = ("*.safetensors*", "*.gguf*", "config.json", "tokenizer*")


def unusable_reason(folder: Path) -> str | None:
    """Return why the model in a folder cannot be opened, from its config.json and the headers of its
    weights; None if it can, or if its weights are fetched with its first use."""
    if gguf_digest(folder) and not any(folder.glob("*.gguf")):
        return None
    return _unusable(folder, _changed(folder))


@lru_cache(maxsize=64)
def _unusable(folder: Path, changed: tuple[int, ...]) -> str | None:
    try:
        if first_supporting_forward(register().backends, folder).name == "hf":
            _check_known(folder)
        Weights(joined_folder(folder), torch.device("cpu"), torch.float32)
    except ModelError as error:
        return about_files(folder, str(error)).rstrip(".")
    except ZooError as error:
        return str(error).rstrip(".")
    return None


def _check_known(folder: Path) -> None:
    """Raise ModelError if transformers has no network of the folder's model_type."""
    from transformers import CONFIG_MAPPING  # takes seconds: only for models that need it

    kind = read_json(folder, "config.json").get("model_type")
    if kind not in CONFIG_MAPPING:
        raise ModelError(
            f"{folder.name} has the model_type {shown(kind)}, which transformers does not know",
            "forward.none",
        )


def vocabulary_problem(target: tuple[str, Path, int], draft: tuple[str, Path, int]) -> str | None:
    """Return why a draft's token ids do not stand for the target's tokens; None if they do. target, draft:
    name, folder and vocabulary size."""
    (name, folder, vocab), (other_name, other, other_vocab) = target, draft
    if same_vocabulary(folder, other, vocab == other_vocab):
        return None
    found = different_tokens(folder, other) if (other / "tokenizer_config.json").is_file() else []
    which = f"; token {found[0]}" + (f" and {len(found) - 1:,} more" if found[1:] else "") if found else ""
    return f"{other_name} cannot draft for {name}: their vocabularies differ ({other_vocab} and {vocab} tokens{which[:160]})."


def draft_problem(target: Path, draft: Path, names: tuple[str, str] | None = None) -> str | None:
    """Return why the model in a folder cannot draft for the one in another; None if it can. names: of
    target and draft."""
    names = names or (target.name, draft.name)
    try:
        widths = [hidden_and_vocab_size(read_json(folder, "config.json"))[1] for folder in (target, draft)]
        return unusable_reason(draft) or vocabulary_problem(
            (names[0], target, widths[0]), (names[1], draft, widths[1])
        )
    except ZooError as error:
        return str(error)


def usable(target: Path, folders: dict[str, Path]) -> dict[str, Path]:
    """Return those of {role: folder} whose model can draft for a target; a reason why one cannot is
    logged."""
    problems = {role: draft_problem(target, folder) for role, folder in folders.items()}
    for role, problem in problems.items():
        if problem:
            _warn(role, problem)
    return {role: folder for role, folder in folders.items() if not problems[role]}


def usable_with_own_words(folder: Path | None) -> Path | None:
    """Return the folder of a draft with a vocabulary of its own, if its weights and its tokenizer can be
    opened."""
    if folder is None:
        return None
    problem = unusable_reason(folder) or tokenizer_problem(folder)
    if problem:
        _warn(ROLE, problem)
    return None if problem else folder


@lru_cache(maxsize=64)
def _warn(role: str, problem: str) -> None:
    """Log once why a model is not used; the picker asks again and again."""
    log.warning("the model for %s is not used: %s", role, problem)


def tokenizer_problem(folder: Path) -> str | None:
    """Return why the tokenizer in a folder cannot be opened; None if it can."""
    return _unreadable(folder, _changed(folder))


@lru_cache(maxsize=64)
def _unreadable(folder: Path, changed: tuple[int, ...]) -> str | None:
    try:
        open_tokenizer(folder)
    except ZooError as error:
        return str(error).rstrip(".")
    return None


def _changed(folder: Path) -> tuple[int, ...]:
    return tuple(sorted(file.stat().st_mtime_ns for pattern in FILES for file in folder.glob(pattern)))
