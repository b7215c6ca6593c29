"""Make a checkpoint folder in Hugging Face format for a GGUF file: config.json, tokenizer files, and a link
to the weights.

The folder is made once per file, in the cache; then the file loads like any other model."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from ..checkpoints.gguf_names import GGUFTensors
from ..checkpoints.gguf_reader import GGUFFile
from ..checkpoints.sizes import check_config
from ..checkpoints.split import cache_folder, model_name, pieces_of
from ..checkpoints.weights import ModelError
from .gguf_config import config_of
from .gguf_tokenizer import NOTES_FILE, save_tokenizer, tokenizer_notes

FORMAT = 2  # of the folder: another number makes every folder anew


def folder_of(path: Path) -> Path:
    """Return the checkpoint folder of a GGUF file, or of a model in several. Raises ModelError for a broken or
    unsupported file, before anything is written."""
    path = path.absolute()  # the hub's cache links to files without an ending
    try:
        pieces = pieces_of(path)
        stats = [piece.stat() for piece in pieces]
    except OSError as error:
        raise ModelError(
            f"{Path(error.filename).name} cannot be read: {error.strerror}", "gguf.read"
        ) from None
    stamp = " ".join(f"{piece} {stat.st_size} {stat.st_mtime_ns}" for piece, stat in zip(pieces, stats))
    mark = hashlib.sha256(f"{FORMAT} {stamp}".encode()).hexdigest()[:12]
    place = cache_folder() / f"{model_name(path.name)}-{mark}"
    if place.is_dir():
        return place
    file = GGUFFile(path)
    config = config_of(file)
    check_config(config, path.name)
    GGUFTensors(file)  # every tensor has a place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as made:
            inner = Path(made) / "whole"
            inner.mkdir()
            for piece in pieces:
                (inner / piece.name).symlink_to(piece)
            ends = save_tokenizer(file, inner)
            (inner / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
            (inner / "generation_config.json").write_text(
                json.dumps({"eos_token_id": sorted(ends) or None}), "utf-8"
            )
            (inner / NOTES_FILE).write_text(json.dumps({"notes": tokenizer_notes(file)}), "utf-8")
            try:
                inner.rename(place)
            except OSError:  # another process was first
                if not place.is_dir():
                    raise
    except OSError as error:
        raise ModelError(
            f"the configuration of {path.name} cannot be written to {place.parent}: {error.strerror}",
            "gguf.write_config",
        ) from None
    return place
