"""Train part of a head that begins with another head's weights, and store that part alone.

A recipe with a list ``trained`` leaves all other parameters as ``begin``'s head has them. The exported folder lacks them, and its
config.json names the head that has them (models/heads.py, ``base_of``).
"""
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def freeze(model: M, hparams: dict) -> M:
    """Leave only the parameters trainable whose names contain one of the recipe's ``trained``; all without that list."""
    for name, weight in model.named_parameters():
        weight.requires_grad_(any(part in name for part in hparams.get("trained") or [name]))
    return model


def base_keys(hparams: dict) -> dict[str, str]:
    """Return what config.json says of a head that shares its frozen weights with the head that it began with."""
    return {"base_head": hparams["begin"]} if hparams.get("trained") else {}
