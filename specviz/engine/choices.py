"""Which targets and draft models a visitor can combine, and how much of a model is downloaded: read from
files only, without torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .messages import text


def fitting_drafts(target: str | None) -> list[dict[str, str]]:
    """Return the draft models of models.yaml with the tokenizer of this target (None: the default): {name,
    title}."""
    from ..zoo.registry import ZooError, register

    try:
        book = register()
        folder = book.find(target).path
    except ZooError:
        return []
    return [
        {"name": e.name, "title": f"{e.name}, {e.size}" if e.size else e.name}
        for e in book.entries.values()
        if e.role == "draft"
        and folder
        and e.path
        and (_same_tokenizer(folder, e.path) or _embeds_with(e.path, folder))
    ]


def target_choice(entry: Any, own: str) -> dict[str, Any]:
    """Return a target's entry for the page's list. own: name of the target with which the server was
    started."""
    from ..zoo.machine_memory import too_large_message

    large = "" if zero_gpu_requested() else too_large_message(entry)
    size = ", ".join(
        word
        for word in (
            entry.size,
            f"{entry.memory} GB" if entry.hub and entry.memory else "",
            "too large here" if large else _expected(entry),
        )
        if word
    )
    choice = {
        "name": "" if entry.name == own else entry.name,
        "model": entry.name,
        "title": ", ".join(filter(None, (entry.name, size))),
        "about": " ".join(
            word
            for word in (entry.about, "Fetched from the hub when first used." if entry.hub else "", large)
            if word
        ),
    }
    choice |= {name: value for name in ("languages", "draft") if (value := getattr(entry, name))}
    choice |= {"away": place} if (place := entry.availability()) != "here" else {}
    choice |= {"pictures": pictures} if (pictures := _picture_samples(entry)) else {}
    if not large:
        return choice
    return choice | {
        "large": text(
            "models.too_large", name=entry.name, why=large, hub=" Nothing is fetched." if entry.hub else ""
        )
    }


def _picture_samples(entry: Any) -> list[dict[str, str]]:
    """Return the sample pictures of a target that reads one before the prompt, {shows, image}; empty for
    any other."""
    from ..zoo.codec import picture_samples

    return picture_samples(entry.path) if entry.path else []


def _expected(entry: Any) -> str:
    """Return the expected speed of a hub model on this machine, or the GPU that it fits on, in a few words;
    empty if unknown."""
    from ..zoo import expected_speed

    if not entry.hub or zero_gpu_requested():
        return ""
    rate = expected_speed.tokens_per_second(entry)
    if rate:
        return text("models.no_gpu", rate=expected_speed.round_speed(rate))
    gpu = expected_speed.largest_gpu()
    return text("models.fits_gpu", gpu=gpu[0], size=gpu[1]) if gpu else ""


def zero_gpu_requested() -> bool:
    """Return whether the accelerator is attached per call (a ZeroGPU Space), so that its memory is unknown
    here."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "true")


def fetched_together(book: Any, target: str | None, draft: str | None) -> list[Any]:
    """Return the entries of hub models that are fetched with a target: the target, its draft model (or the
    requested one), and its heads."""
    entry = book.entries.get(target or book.default)
    if entry is None:
        return []
    draft_entry = book.entries.get(draft or entry.draft)
    heads = [e for e in book.entries.values() if e.role == "head" and e.target == entry.name]
    return [e for e in (entry, draft_entry, *heads) if e is not None and e.hub]


def _same_tokenizer(one: Path, other: Path) -> bool:
    """Return whether two folders hold the same tokenizer file; zoo.pair compares more when they are
    loaded."""
    try:
        return (one / "tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes()
    except OSError:
        return False


def _embeds_with(draft: Path, target: Path) -> bool:
    """Return whether a draft has no tokenizer and embedding of its own but projects this target's
    (models/reduced_vocabulary.py)."""
    from ..zoo.tokenizer import ZooError, read_json

    try:
        return read_json(draft, "config.json").get("embedding_from") == target.name
    except ZooError:
        return False


def bytes_fetched(hub_id: str) -> int:
    """Return the number of bytes of a hub model that are in the cache, those of unfinished files included."""
    from huggingface_hub.constants import HF_HUB_CACHE

    blobs = Path(HF_HUB_CACHE) / f"models--{hub_id.replace('/', '--')}" / "blobs"
    try:
        return sum(file.stat().st_size for file in blobs.iterdir())
    except OSError:  # the download has not begun, or a file was renamed meanwhile
        return 0
