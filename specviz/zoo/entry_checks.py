"""Check the entries of models.yaml: their fields, and, with network access, the configurations of hub
models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .backends import first_supporting_forward
from .free_memory import GB
from .registry import GGUF, INSTALLED, Entry, Register, ZooError
from .tokenizer import read_json, same_vocabulary
from .trained_heads import hidden_and_vocab_size

BYTES = 2  # of a number in 16 bits
SLACK = 1.6  # largest ratio between the memory an entry states and the sum of its configuration


def check(book: Register, network: bool = False) -> list[dict[str, Any]]:
    """Check every entry of models.yaml; return a row per entry: {name, where, problems}. network: also
    fetch the configurations of hub models, until the hub does not answer."""
    found = []
    for entry in book.entries.values():
        problems = [*_fields(entry, book)]
        try:
            if entry.path is not None and entry.path.is_relative_to(INSTALLED) and not entry.path.exists():
                folder = None  # a package does not hold all of the repository's models
            else:
                folder = _config_folder(entry, network)
            if folder is not None and (folder / "config.json").is_file():
                problems += _files(entry, book, folder, network)
            elif folder is not None and not entry.target:  # a head of a recipe may not be trained yet
                problems.append("there is no config.json in its folder")
        except ZooError as error:
            problems.append(str(error).rstrip("."))
            network = network and error.code != "hub.unreachable"
        found.append({"name": entry.name, "where": entry.hub or "a folder", "problems": problems})
    return found


PROBLEMS = {  # of an entry, by identifier
    "licence": "it names no licence",
    "about": "it has no text `about`",
    "memory": "a hub model must state the GB of memory of its weights in 16 bits",
    "draft_size": "its draft {draft} is no smaller than itself",
    "config": "its config.json names no width or no vocabulary",
    "size": "its configuration adds up to {size:.1f} GB in 16 bits, not {stated}",
    "draft_vocabulary": "its draft {draft} has another vocabulary ({width} and {vocab} tokens)",
}


def _config_folder(entry: Entry, network: bool) -> Path | None:
    """Return the folder with the entry's config.json; None if it would have to be fetched without network.
    Raises ZooError."""
    if entry.path is not None and entry.path.suffix != GGUF:
        return entry.path
    return entry.config_folder() if network or entry.path else None


def _fields(entry: Entry, book: Register) -> Iterator[str]:
    """Return problems of the entry's own fields; names and commits are checked when models.yaml is read."""
    if not entry.licence:
        yield PROBLEMS["licence"]
    if not entry.about:
        yield PROBLEMS["about"]
    if entry.hub and not _number(entry.memory):
        yield PROBLEMS["memory"]
    yield from _names(entry, book)


def _names(entry: Entry, book: Register) -> Iterator[str]:
    """Return problems of its draft's size; roles, kinds and forwards are checked when models.yaml is read."""
    if (
        entry.draft
        and _number(entry.memory)
        and _number(book.entries[entry.draft].memory)
        and float(book.entries[entry.draft].memory) >= float(entry.memory)
    ):
        yield PROBLEMS["draft_size"].format(draft=entry.draft)


def _files(entry: Entry, book: Register, folder: Path, network: bool) -> Iterator[str]:
    """Return problems of its configuration: no forward pass that runs it, a size unlike the stated one, a
    draft of another vocabulary."""
    if entry.role == "head":
        return
    config = read_json(folder, "config.json")
    first_supporting_forward(book.backends, folder, entry.backend)
    hidden, vocab = hidden_and_vocab_size(config)
    if not hidden or not vocab:
        yield PROBLEMS["config"]
    size = estimated_parameters(config)
    if size and _number(entry.memory) and not 1 / SLACK < size * BYTES / GB / float(entry.memory) < SLACK:
        yield PROBLEMS["size"].format(size=size * BYTES / GB, stated=entry.memory)
    draft = book.entries.get(entry.draft)
    if draft is None:
        return
    other = _config_folder(draft, network)
    if other is None or not (other / "config.json").is_file():
        return
    width = hidden_and_vocab_size(read_json(other, "config.json"))[1]
    have_tokenizers = (folder / "tokenizer.json").is_file() and (other / "tokenizer.json").is_file()
    if not (same_vocabulary(folder, other, width == vocab) if have_tokenizers else width == vocab):
        yield PROBLEMS["draft_vocabulary"].format(draft=draft.name, width=width, vocab=vocab)


def estimated_parameters(config: dict[str, Any]) -> int | None:
    """Estimate a decoder's number of parameters from its config.json; None if sizes are missing."""
    inner = config.get("text_config") or config
    try:
        d = inner["hidden_size"]
        layers = inner["num_hidden_layers"]
        vocab = inner["vocab_size"]
        heads = inner["num_attention_heads"]
        width, ff = inner.get("head_dim") or d // heads, inner["intermediate_size"]
    except KeyError:
        return None
    rows = width * (2 * heads + 2 * (inner.get("num_key_value_heads") or heads))
    return layers * (rows * d + 3 * d * ff) + vocab * d * (1 if inner.get("tie_word_embeddings") else 2)


def _number(word: str) -> bool:
    try:
        return 0 < float(word) < 10_000
    except ValueError:
        return False
