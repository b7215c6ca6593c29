"""Trained heads: find those of a target by kind, check that they fit, and load each once.

The methods declare the kinds (core.method.Trained). A kind's network is a module with two functions:
``load(folder, body)`` reads a folder, in this project's or a published layout; ``build(body, hparams)``
makes an untrained head with a recipe's hyperparameters. ``target`` describes the target (TargetInfo,
models/heads.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ..checkpoints.errors import about_files, shown
from ..methods import head_kinds
from ..models.heads import TargetInfo, unsupported_reason
from .free_memory import require_memory
from .registry import Register, ZooError, clone_hint, local_files


def network_of(kind: str) -> ModuleType:
    """Return the Python module that loads and builds heads of a kind."""
    return import_module(head_kinds()[kind].network)


@dataclass(frozen=True)
class Heads:
    """The trained heads of one target. folders: {kind: folder}; problems: {kind: why the head listed for it
    cannot be used}."""

    folders: dict[str, Path] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def capabilities(self) -> frozenset[str]:
        """The capability "head:<kind>" for each usable head."""
        return frozenset(f"head:{kind}" for kind in self.folders)


def heads_of(
    book: Register,
    name: str,
    folder: Path,
    hidden: int,
    vocab: int,
    on: torch.device | None = None,
    fetch: bool = True,
) -> Heads:
    """Return the heads of a target; for each kind the first that fits. name, folder, hidden, vocab: the
    target's. Reads no weights. Raises ZooError for an unknown kind.

    on: the device that must have enough memory before a hub head is fetched; fetch: False assumes that a
    head that is not on this machine fits, as models.yaml says."""
    folders: dict[str, Path] = {}
    problems: dict[str, str] = {}
    for entry in book.entries.values():
        if entry.role == "head" and entry.kind not in head_kinds():
            raise ZooError(
                f"models.yaml calls {shown(entry.name)} a head of kind {shown(entry.kind)!r}; "
                f"there are {', '.join(head_kinds())}.",
                "models_yaml.head_kind",
            )
    for entry in book.made_for(name, folder):
        if entry.role != "head" or entry.kind in folders or entry.path and not entry.path.is_dir():
            continue
        if entry.hub and not fetch and local_files(entry) is None:
            folders[entry.kind] = folder
            continue
        try:
            if entry.hub and on is not None and local_files(entry) is None:
                require_memory(entry, on)
            place = entry.folder()
            problem = unsupported_reason(place, name, hidden, vocab, entry.kind)
            problem = problem and about_files(place, problem)
        except ZooError as error:
            problem = str(error)
        if problem:
            problems.setdefault(entry.kind, problem.rstrip("."))
        else:
            folders[entry.kind] = place
    for entry in book.entries.values():  # reported only if there is no other problem
        if entry.role == "head" and entry.path and entry.path.is_dir():
            problems.setdefault(entry.kind, f"there are some for {entry.target} alone")
    return Heads(folders, {kind: problem for kind, problem in problems.items() if kind not in folders})


def hidden_and_vocab_size(config: dict[str, Any]) -> tuple[int, int]:
    """Return (hidden size, vocabulary size) from a target's config.json; 0 for a size that it does not
    give."""
    inner = config.get("text_config") or config
    return inner.get("hidden_size") or inner.get("n_embd") or 0, inner.get("vocab_size") or 0


def body_of(name: str, model: Any, folder: Path | None = None) -> TargetInfo:
    """Describe a loaded target for the reader of a head. folder: the target's folder."""
    config = model.config if isinstance(model.config, dict) else model.config.to_dict()
    return TargetInfo(
        name,
        model.hidden,
        model.vocab,
        model.layers,
        torch.device(model.device),
        model.dtype,
        config,
        static=getattr(model, "forward", "eager") != "eager",
        use_int8=getattr(model, "numbers", "") == "int8",
        folder=folder,
    )


_HOW = "; `python -m specviz.training {kind} --data DIR --target NAME --size SIZE --ship` trains some for an embedded target"
NEEDED = {
    "missing": "needs {kind} heads trained on {name}" + _HOW,
    "problem": "needs {kind} heads, and {problem}" + _HOW,
}


def needed(kind: str, name: str, problems: dict[str, str]) -> str:
    """Return that a head of this kind is missing or unusable, as the end of a message ("needs ..."). name:
    the target's."""
    return (
        NEEDED["problem" if kind in problems else "missing"].format(
            kind=kind, name=name, problem=problems.get(kind, "")
        )
        + clone_hint()
    )
