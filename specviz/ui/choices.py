"""Which models may stand beside each other, and how much of one is here already: from files alone, without torch."""
from __future__ import annotations

from pathlib import Path


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
