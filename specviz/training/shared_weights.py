"""Train part of a head that starts from another head's weights, and store that part alone.

A recipe with a list ``trained`` leaves all other parameters as they are in the head that it starts from
(``begin``). The exported folder lacks them, and its config.json names the head that has them
(models/heads.py, ``base_of``)."""

from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def freeze_untrained(model: M, hparams: dict) -> M:
    """Make only those parameters trainable whose names contain one of the recipe's ``trained``; all
    parameters without that list. Return the model."""
    for name, weight in model.named_parameters():
        weight.requires_grad_(any(part in name for part in hparams.get("trained") or [name]))
    return model


def base_head_fields(hparams: dict) -> dict[str, str]:
    """Return the fields of config.json that name the head from which a head takes its frozen weights; empty
    if it has all of its weights."""
    return {"base_head": hparams["begin"]} if hparams.get("trained") else {}
