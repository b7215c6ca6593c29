"""Random heads of every kind for a target of any size: what the catalogue-wide tests give to methods that
need them."""

from __future__ import annotations

import torch

from specviz.methods import head_kinds
from specviz.models.heads import TargetInfo, ready
from specviz.training.job import Job
from specviz.zoo.trained_heads import network_of

PROVIDED = frozenset(f"head:{kind}" for kind in head_kinds())


def body(target, config=None) -> TargetInfo:
    """Facts of any target of ours; scripted ones compute in double precision and have no config."""
    model, net = getattr(target, "model", None), getattr(target, "net", None)
    told = getattr(model, "config", None) or {}
    return TargetInfo(
        "toy",
        target.hidden,
        target.vocab,
        target.layers,
        getattr(model, "device", torch.device("cpu")),
        getattr(model, "dtype", torch.float64),
        config or (told if isinstance(told, dict) else told.to_dict()),
        net and (net.heads, net.width // net.heads),
        getattr(model, "forward", "eager") in ("static", "captured"),
    )


def head(kind: str, on: TargetInfo, seed: int = 0) -> torch.nn.Module:
    """An untrained head of the recipe's tiny size; every weight is random, so that each of them matters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = network_of(kind).build(on, Job(size="tiny").hparams(kind))
        for weight in made.parameters():
            torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    return ready(made, on)
