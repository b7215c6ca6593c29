"""The catalogue: one file a method, found by itself."""
from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from ..core import Method


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Method]:
    """Every method by key: plain decoding first, then by family and title. Raises ValueError where key and file name differ."""
    found = []
    for module in iter_modules(__path__):
        method = import_module(f"{__name__}.{module.name}").METHOD
        if method.key != module.name:
            raise ValueError(f"methods/{module.name}.py describes {method.key!r}; the key is the file's name")
        found.append(method)
    found.sort(key=lambda method: (method.key != "autoregressive", method.family, method.title))
    return {method.key: method for method in found}
