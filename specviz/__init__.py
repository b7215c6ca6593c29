"""specviz: watch speculative decoding accept and reject tokens.

    from specviz import catalogue, load, Session, Sampling, Trace

Names are imported when first used, so that ``import specviz`` costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core import Sampling
    from .methods import catalogue
    from .notebook import compare, watch
    from .run import GenerationRequest, Result, RunFailed, Session, SessionError, collect, race
    from .trace.files import Trace
    from .trace.schema import TraceError
    from .zoo import Loaded, ZooError, load

_HERE = Path(__file__).resolve().parent
# The folder of models.yaml and assets/: the checkout, or specviz/data where the package is installed
# (setup.py).
ROOT = _HERE / "data" if (_HERE / "data" / "models.yaml").is_file() else _HERE.parent
ASSETS = ROOT / "assets"
VERSION = "0.1.0"
__version__ = VERSION


def lazy_names(package: str, where: dict[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__`` that imports names on first use. ``where``: name -> module of the
    package that holds it."""

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f".{where[name]}", package), name)

    return find


_WHERE = {
    "GenerationRequest": "run",
    "Loaded": "zoo",
    "Result": "run",
    "RunFailed": "run",
    "Sampling": "core",
    "Session": "run",
    "SessionError": "run",
    "Trace": "trace.files",
    "TraceError": "trace.schema",
    "ZooError": "zoo",
    "catalogue": "methods",
    "collect": "run",
    "compare": "notebook",
    "load": "zoo",
    "race": "run",
    "watch": "notebook",
}

__all__ = [
    "GenerationRequest",
    "Loaded",
    "Result",
    "RunFailed",
    "Sampling",
    "Session",
    "SessionError",
    "Trace",
    "TraceError",
    "ZooError",
    "__version__",
    "catalogue",
    "collect",
    "compare",
    "load",
    "race",
    "watch",
]
if not TYPE_CHECKING:  # so that a type checker reports names that do not exist
    __getattr__ = lazy_names(__name__, _WHERE)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
