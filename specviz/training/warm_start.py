"""Weights that a head begins with: those of another head of the same target, where a name and a shape agree.

Related heads differ in a matrix or two, and a layer that has learned to read the target's states need not learn it again. Two
processor cores train some hundred tokens a second, so that is most of what such a head will ever have learned.
"""
from __future__ import annotations

import torch
from safetensors.torch import load_file
from torch import nn

from ..models import mx
from .job import Job, TrainingError


def begin(job: Job, model: nn.Module, kind: str, names: dict[str, str] | None = None) -> float:
    """Copies into ``model`` what the target's head of this kind has; the share of the model's weights that was copied.

    names: {name there: name here} where they are called otherwise, for whole names or what they begin with.
    Raises TrainingError when there is no such head, or when nothing of it fits.
    """
    own, copied, found = dict(model.named_parameters()), 0, {}
    for path in sorted(job.model(job.named(kind)).glob("*.safetensors")):
        found |= load_file(path)
    for name, weight in mx.read(found).items():
        there = next((start for start in names or {} if name.startswith(start)), None)
        name = name if there is None else names[there] + name.removeprefix(there)
        if name in own and own[name].shape == weight.shape:
            with torch.no_grad():
                own[name].copy_(weight)
            copied += weight.numel()
    if not copied:
        raise TrainingError(f"Nothing of {job.named(kind)} fits the head that is to begin with it.", "training.nothing_fits")
    return copied / sum(weight.numel() for weight in own.values())
