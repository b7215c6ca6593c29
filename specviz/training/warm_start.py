"""Initialise a head with weights of another head of the same target, where names and shapes agree.

Related heads differ in a matrix or two, so the layer that reads the target's states need not be trained
again. Two CPU cores train only some hundred tokens per second, so the initial weights matter a lot.
"""

from __future__ import annotations

import torch
from safetensors.torch import load_file
from torch import nn

from ..checkpoints import mx
from .job import Job, TrainingError


def copy_head_weights(job: Job, model: nn.Module, kind: str, names: dict[str, str] | None = None) -> float:
    """Copy weights of the target's head of this kind into ``model`` where names and shapes agree. Return
    the share of the model's weights that was copied.

    names: {name in the other head: name in this one} for renamed parameters, whole names or prefixes.
    Raises TrainingError if there is no such head, or if no weight fits."""
    own = dict(model.named_parameters())
    copied = 0
    found = {}
    for path in sorted(job.model(job.model_name(kind)).glob("*.safetensors")):
        found |= load_file(path)
    for name, weight in mx.from_file_tensors(found).items():
        there = next((start for start in names or {} if name.startswith(start)), None)
        name = name if there is None or names is None else names[there] + name.removeprefix(there)
        if name in own and own[name].shape == weight.shape:
            with torch.no_grad():
                own[name].copy_(weight)
            copied += weight.numel()
    if not copied:
        raise TrainingError(
            f"Nothing of {job.model_name(kind)} fits the head that is to begin with it.",
            "training.nothing_fits",
        )
    return copied / sum(weight.numel() for weight in own.values())
