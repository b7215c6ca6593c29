"""The catalogue: a folder a family, a file a method, found by themselves."""
from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Iterator

from ..core import Family, Method


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Method]:
    """Every method by key: plain decoding first, then by family and title. Raises ValueError where key and file name differ, or
    where two families have a method of one key."""
    found: dict[str, Method] = {}
    for folder, family in _folders():
        for module in iter_modules(folder.__path__):
            method = import_module(f"{folder.__name__}.{module.name}").METHOD
            if method.key != module.name:
                raise ValueError(f"{folder.__name__}.{module.name} describes {method.key!r}; the key is the file's name")
            if method.key in found:
                raise ValueError(f"two families have a method {method.key!r}")
            found[method.key] = replace(method, family=family.title)
    ordered = sorted(found.values(), key=lambda method: (method.key != "autoregressive", method.family, method.title))
    return {method.key: method for method in ordered}


def families() -> dict[str, Family]:
    """The families by the title that their methods carry."""
    return {family.title: family for _, family in _folders()}


def _folders() -> Iterator[tuple[ModuleType, Family]]:
    for module in iter_modules(__path__):
        folder = import_module(f"{__name__}.{module.name}")
        yield folder, folder.FAMILY
