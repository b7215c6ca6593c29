"""Write files so that neither a full disk nor a killed process loses the old ones.

Each file is written next to its destination, flushed to disk, and renamed over it. Readers see the old or
the new file, never a partial one.
"""

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from ..checkpoints import mx
from ..checkpoints.split import split_shards
from ..trace.file_writer import write_file
from ..zoo.found_weights import FOLDER, mark
from .job import Job, TrainingError

# How every card begins.
FRONT = """---
license: other
license_name: llama3.1-and-sources
license_link: ../LICENSES.md
language: [en]
---
# {name}

**Built with Llama.** """


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically (trace.file_writer); after an error the old file is unchanged. Raises
    TrainingError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
    except OSError as error:
        raise TrainingError(
            f"Could not save {path} ({error.strerror}); what was there before is untouched.", "training.save"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically. Raises TrainingError."""
    write_bytes(path, text.encode("utf-8"))


def write_tokenizer(tokenizer: Any, place: Path) -> None:
    """Write a tokenizer's files into the folder ``place``, each atomically."""
    with tempfile.TemporaryDirectory() as made:
        tokenizer.save_pretrained(made)
        for file in sorted(Path(made).iterdir()):
            write_bytes(place / file.name, file.read_bytes())


def write_json(path: Path, value) -> None:
    """Write a value as indented JSON, atomically. Raises TrainingError."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_tensors(
    path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file atomically. metadata: stored with it. Raises TrainingError."""
    try:
        content = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, metadata)
    except SafetensorError as error:
        raise TrainingError(f"Could not write {path}: {error}.", "training.write") from error
    write_bytes(path, content)


def write_shards(place: Path, tensors: dict[str, torch.Tensor], most: float = 8e6) -> None:
    """Write model.safetensors, or numbered files of at most ``most`` bytes with an index; then remove other
    weight files from the folder."""
    parts: list[dict[str, torch.Tensor]] = [{}]
    for name, tensor in tensors.items():
        if parts[-1] and sum(t.nbytes for t in parts[-1].values()) + tensor.nbytes > most:
            parts.append({})
        parts[-1][name] = tensor
    names = [f"model-{i:05d}-of-{len(parts):05d}.safetensors" for i in range(1, len(parts) + 1)]
    names = ["model.safetensors"] if len(parts) == 1 else names
    for name, part in zip(names, parts):
        write_tensors(place / name, part)
    if len(parts) > 1:
        where = {key: name for name, part in zip(names, parts) for key in part}
        write_json(place / "model.safetensors.index.json", {"metadata": {}, "weight_map": where})
        names.append("model.safetensors.index.json")
    for old in [*place.glob("*.safetensors"), *place.glob("*.index.json")]:
        if old.name not in names:
            old.unlink()


def relink_card(card: str, job: Job, place: Path) -> str:
    """Return a model card in which links to model folders are relative to ``place``, the folder that the
    card is written to."""
    return (
        card
        if place.parent.name != FOLDER
        else card.replace("](../", "](../../../").replace("_link: ../", "_link: ../../../")
    )


def quantise_matrices(folder: Path) -> None:
    """Rewrite a checkpoint's matrices in MXINT8 (8-bit numbers with a scale per block), and record that in
    its config.json."""
    weights: dict[str, torch.Tensor] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        weights |= load_file(shard)
    write_shards(folder, mx.to_file_tensors(weights))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | {"quantization_config": mx.QUANTISED})


def as_stored(model: Any) -> Any:
    """Return a copy of a model with the values that ``export`` would store: large matrices rounded to
    MXINT8, all else to bfloat16."""
    rounded = copy.deepcopy(model).to("cpu", torch.bfloat16)
    rounded.load_state_dict(mx.from_file_tensors(mx.to_file_tensors(rounded.state_dict())))
    return rounded.to(next(model.parameters()).device)


def export(job: Job, name: str, model, tokenizer, kind: str = "") -> Path:
    """Write a finished model (matrices in MXINT8, all else in bfloat16) with its tokenizer to
    ``<work>/models``, and with ``--ship`` to ``assets/models``; return the folder. kind: recorded in
    config.json, so that methods find the model by it."""
    places = job.output_folders(name)
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{name}.") as temporary:
            try:
                copy.deepcopy(model).to("cpu", torch.bfloat16).save_pretrained(
                    temporary, max_shard_size="8MB"
                )
                tokenizer.save_pretrained(temporary)
                if kind:
                    config = Path(temporary) / "config.json"
                    write_json(
                        config, json.loads(config.read_text(encoding="utf-8")) | mark(kind, job.target)
                    )
                quantise_matrices(Path(temporary))
                split_shards(Path(temporary))
            except (OSError, SafetensorError) as error:
                raise TrainingError(
                    f"Could not save {place} ({error}); what was there before is untouched.", "training.save"
                ) from error
            place.mkdir(exist_ok=True)
            new = {path.name for path in Path(temporary).iterdir()}
            for path in Path(temporary).iterdir():
                path.chmod(0o644)
                path.replace(place / path.name)
            for old in place.glob("*.safetensors*"):  # shards of another count
                if old.name not in new:
                    old.unlink()
    return places[0]
