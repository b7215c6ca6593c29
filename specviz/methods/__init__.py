"""The catalogue of methods, found by importing the folders: one folder per family, one module or package
per method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from ..core import Family, Method, Trained
from ..core.note_kind import Note
from ..core.note_kinds import NOTES


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Method]:
    """Return every method by key: plain decoding first, the others sorted by family and title. Raises
    ValueError if a key differs from its file name, or if two methods have the same key."""
    found: dict[str, Method] = {}
    for folder, family in _folders():
        for module in iter_modules(folder.__path__):
            method = import_module(f"{folder.__name__}.{module.name}").METHOD
            if method.key != module.name:
                raise ValueError(
                    f"{folder.__name__}.{module.name} describes {method.key!r}; the key is the file's name"
                )
            if method.key in found:
                raise ValueError(f"two families have a method {method.key!r}")
            found[method.key] = replace(method, family=family.title)
    ordered = sorted(
        found.values(), key=lambda method: (method.key != "autoregressive", method.family, method.title)
    )
    return {method.key: method for method in ordered}


@lru_cache(maxsize=1)
def trained_parts() -> dict[str, Trained]:
    """Return the trained weights that methods declare (``Method.trains``), by kind. Raises ValueError if
    two methods declare the same kind."""
    found: dict[str, Trained] = {}
    for method in catalogue().values():
        for part in method.trains:
            if found.setdefault(part.kind, part) is not part:
                raise ValueError(f"two methods declare the trained part {part.kind!r}")
    return found


def head_kinds() -> dict[str, Trained]:
    """Return the trained draft heads by kind: the trained weights that a network module loads and runs on a
    target's hidden states."""
    return {kind: part for kind, part in trained_parts().items() if part.network}


def draft_kinds() -> dict[str, Trained]:
    """Return the trained draft models by kind: the trained weights that are complete models."""
    return {kind: part for kind, part in trained_parts().items() if not part.network}


def note_kinds() -> dict[str, Note]:
    """Return every kind of note that a round may report, by name: the shared ones and those that methods
    declare."""
    catalogue()
    return NOTES


def families() -> dict[str, Family]:
    """Return every family of methods by title."""
    return {family.title: family for _, family in _folders()}


def _folders() -> Iterator[tuple[ModuleType, Family]]:
    for module in iter_modules(__path__):
        folder = import_module(f"{__name__}.{module.name}")
        yield folder, folder.FAMILY
