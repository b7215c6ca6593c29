"""Trained heads by kind: which of models.yaml belong to a target, whether they fit it, and each read once.

A kind's reader is a module of specviz/models with two functions: ``load(folder, body)`` reads a folder, ours or a published
one, and ``build(body, numbers)`` makes an untrained head from the numbers of its recipe. ``body`` says what the target is
(models/heads.py). Whoever adds a kind adds a line to KINDS.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ..models.heads import Body, why_not
from ..models.int8 import has_byte_products
from .memory import need_room
from .registry import Register, ZooError, here

KINDS = {
    "medusa": "specviz.methods.trained_heads.medusa.network",
    "hydra": "specviz.models.hydra",
    "eagle": "specviz.models.eagle",
    "eagle3": "specviz.models.eagle3",
    "mtp": "specviz.methods.trained_heads.mtp.network",
    "kangaroo": "specviz.methods.trained_heads.kangaroo.network",
    "m2r2": "specviz.methods.trained_heads.m2r2.network",
    "dflash": "specviz.models.block",
    "dspark": "specviz.models.block",
    "specdecpp": "specviz.models.draft_length",
    "adaeagle": "specviz.models.draft_length",
    "disco": "specviz.models.draft_length",
    "peagle": "specviz.methods.trained_heads.peagle.network",
    "fspad": "specviz.methods.trained_heads.fspad.network",
    "jakiro": "specviz.methods.trained_heads.jakiro.network",
    "falcon": "specviz.methods.trained_heads.falcon.network",
    "cllm": "specviz.models.causal",
    "judge": "specviz.models.judge",
    "reward": "specviz.models.judge",
    "pard": "specviz.models.masked",
    "glide": "specviz.methods.trained_heads.glide.network",
    "mlp_speculator": "specviz.methods.trained_heads.mlp_speculator.network",
    "redrafter": "specviz.methods.trained_heads.redrafter.network",
    "clover": "specviz.methods.trained_heads.clover.network",
    "blockwise": "specviz.methods.trained_heads.blockwise.network",
    "chimera": "specviz.methods.trained_heads.chimera.network",
    "pass_sampling": "specviz.models.in_target",
    "ppd": "specviz.models.in_target",
    "hidden_transfer": "specviz.models.in_target",
    "speculative_streaming": "specviz.models.in_target",
}


def reader(kind: str) -> ModuleType:
    """The module that reads heads of a kind."""
    return import_module(KINDS[kind])


@dataclass(frozen=True)
class Heads:
    """The heads of one target. folders: kind -> where it lies; problems: kind -> why the one that is named cannot be used."""

    folders: dict[str, Path] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset(f"head:{kind}" for kind in self.folders)


def heads_of(book: Register, name: str, folder: Path, hidden: int, vocab: int, on: torch.device | None = None,
             fetch: bool = True) -> Heads:
    """The heads that models.yaml names for a target, by its name or by its folder; of a kind the first that fits. Reads no
    weights. on: where a head of the hub must find room before it is fetched; without ``fetch`` one that is not here counts as what
    models.yaml says. Raises ZooError for a kind that nothing here reads."""
    folders: dict[str, Path] = {}
    problems: dict[str, str] = {}
    for entry in book.entries.values():
        if entry.role != "head":
            continue
        if entry.kind not in KINDS:
            raise ZooError(f"models.yaml calls {entry.name} a head of kind {entry.kind!r}; there are {', '.join(KINDS)}.")
        whole = book.entries[entry.target]
        if entry.kind in folders or name != whole.name and not (whole.path and whole.path.resolve() == folder.resolve()):
            continue
        if entry.path and not entry.path.is_dir():
            continue  # not trained yet
        if entry.hub and not fetch and here(entry) is None:
            folders[entry.kind] = folder
            continue
        try:
            if entry.hub and on is not None and here(entry) is None:
                need_room(entry, on)
            place = entry.folder()
            problem = why_not(place, name, hidden, vocab, entry.kind)
        except ZooError as error:
            problem = str(error)
        if problem:
            problems.setdefault(entry.kind, problem.rstrip("."))
        else:
            folders[entry.kind] = place
    for entry in book.entries.values():  # said only where nothing else is
        if entry.role == "head" and entry.path and entry.path.is_dir():
            problems.setdefault(entry.kind, f"there are some for {entry.target} alone")
    return Heads(folders, {kind: problem for kind, problem in problems.items() if kind not in folders})


def sizes(config: dict[str, Any]) -> tuple[int, int]:
    """Width and vocabulary from a target's config.json, as far as it says them."""
    inner = config.get("text_config") or config
    return inner.get("hidden_size") or inner.get("n_embd") or 0, inner.get("vocab_size") or 0


def body_of(name: str, model: Any, folder: Path | None = None) -> Body:
    """What a head's reader is told of a loaded target; folder: where it lies."""
    config = model.config if isinstance(model.config, dict) else model.config.to_dict()
    return Body(name, model.hidden, model.vocab, model.layers, torch.device(model.device), model.dtype, config,
                static=getattr(model, "forward", "eager") != "eager", eight=getattr(model, "numbers", "") == "int8" and has_byte_products(),
                folder=folder)


def needed(kind: str, name: str, problems: dict[str, str]) -> str:
    """What would make a method work that needs heads of a kind; the end of a sentence."""
    how = f"`python -m specviz.training {kind} --ship --target NAME` trains some for an embedded target"
    return f"needs {kind} heads, and {problems[kind]}; {how}" if kind in problems else f"needs {kind} heads trained on {name}; {how}"
