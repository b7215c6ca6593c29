"""The command line: ``python -m specviz``."""

from .commands import main

__all__ = ["main"]
