"""Which models may stand beside each other, and how much of one is here already: from files alone, without torch."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def fitting(target: str | None) -> list[dict[str, str]]:
    """Draft models of models.yaml with the tokenizer of this target (None: the default): {name, title}."""
    from ..zoo.registry import ZooError, register

    try:
        book = register()
        folder = book.find(target).path
    except ZooError:
        return []
    return [{"name": e.name, "title": f"{e.name}, {e.size}" if e.size else e.name} for e in book.entries.values()
            if e.role == "draft" and folder and e.path and _same_tokenizer(folder, e.path)]


def offered(entry: Any, own: str) -> dict[str, str]:
    """A target as the page offers it; own: the name of the one the server was started with."""
    from ..zoo.room import too_large

    large = "" if lent_by_the_call() else too_large(entry)
    size = ", ".join(word for word in (entry.size, f"{entry.memory} GB" if entry.hub and entry.memory else "",
                                       "too large here" if large else "") if word)
    told = {"name": "" if entry.name == own else entry.name, "model": entry.name, "title": f"{entry.name}, {size}" if size else entry.name,
            "about": " ".join(word for word in (entry.about, "Fetched from the hub when first used." if entry.hub else "", large) if word)}
    told |= {name: value for name in ("scripts", "draft") if (value := getattr(entry, name))}
    return told | {"large": f"{entry.name} does not fit here. {large}{' Nothing is fetched.' if entry.hub else ''}"} if large else told


def lent_by_the_call() -> bool:
    """Whether the accelerator is not this machine's, so that nobody can tell how large it is."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "true")


def together_with(book: Any, target: str | None, draft: str | None) -> list[Any]:
    """The hub entries that are fetched with a target: itself, its draft or the one asked for, and its heads."""
    entry = book.entries.get(target or book.default)
    if entry is None:
        return []
    beside = book.entries.get(draft or entry.draft)
    heads = [e for e in book.entries.values() if e.role == "head" and e.target == entry.name]
    return [e for e in (entry, beside, *heads) if e is not None and e.hub]


def _same_tokenizer(one: Path, other: Path) -> bool:
    """Whether two folders hold the same tokenizer, by its file: zoo.pair looks closer when they are loaded."""
    try:
        return (one / "tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes()
    except OSError:
        return False


def fetched(hub_id: str) -> int:
    """Bytes of a hub model in the cache, also those of files that are still on their way."""
    from huggingface_hub.constants import HF_HUB_CACHE

    blobs = Path(HF_HUB_CACHE) / f"models--{hub_id.replace('/', '--')}" / "blobs"
    try:
        return sum(file.stat().st_size for file in blobs.iterdir())
    except OSError:  # not begun, or a file was renamed between the two looks
        return 0
