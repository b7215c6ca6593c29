"""specviz: watch speculative decoding accept and reject tokens.

    from specviz import catalogue, load, Session, Sampling, Trace

Names are imported when first used, so that ``import specviz`` costs nothing.
"""
from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {"catalogue": "methods", "load": "zoo", "Session": "session", "race": "session", "Sampling": "core",
          "Trace": "core.trace", "TraceError": "core.trace", "SessionError": "request", "ZooError": "names"}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'specviz' has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
