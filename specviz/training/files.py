"""Writing that a full disk or a kill cannot turn into a loss.

Everything is written beside its place, flushed to the disk, then renamed over it: whoever reads
sees the old file or the new one, never half of one.
"""

import copy
import json
import os
import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save

from .job import Job, TrainingError


def write_bytes(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.with_name(f".{path.name}.part")  # always the same: what a kill leaves is written over
    try:
        with open(name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError as error:
        name.unlink(missing_ok=True)
        raise TrainingError(f"Could not save {path} ({error.strerror}); what was there before is untouched.") from error
    except BaseException:
        name.unlink(missing_ok=True)
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


def export(job: Job, name: str, model, tokenizer) -> Path:
    """The finished model as bf16 shards in `<work>/models`, and with `--ship` in `assets/models`."""
    places = [job.work / "models" / name] + ([job.shipped / name] if job.ship else [])
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{name}.") as temporary:
            try:
                copy.deepcopy(model).to("cpu", torch.bfloat16).save_pretrained(temporary, max_shard_size="8MB")
                tokenizer.save_pretrained(temporary)
            except (OSError, SafetensorError) as error:
                raise TrainingError(f"Could not save {place} ({error}); what was there before is untouched.") from error
            place.mkdir(exist_ok=True)
            new = {path.name for path in Path(temporary).iterdir()}
            for path in Path(temporary).iterdir():
                os.chmod(path, 0o644)
                os.replace(path, place / path.name)
            for old in place.glob("*.safetensors"):  # shards of another count
                if old.name not in new:
                    old.unlink()
    return places[0]
