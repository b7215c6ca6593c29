"""Writing that a full disk or a kill cannot turn into a loss.

Everything is written beside its place, flushed to the disk, then renamed over it: whoever reads
sees the old file or the new one, never half of one.
"""

import json
import os
import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save

from .job import TrainingError


def write_bytes(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise TrainingError(f"Could not save {path} ({error.strerror}); what was there before is untouched.") from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], note: dict[str, str] | None = None) -> None:
    try:
        content = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, note)
    except SafetensorError as error:
        raise TrainingError(f"Could not write {path}: {error}.") from error
    write_bytes(path, content)
