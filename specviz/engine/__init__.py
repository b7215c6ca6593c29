"""What answers the page's and the endpoint's requests: the engine, its queue, limits and messages."""

from typing import TYPE_CHECKING

from .. import lazy_names

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Engine"]
if not TYPE_CHECKING:  # so that a type checker reports names that do not exist
    __getattr__ = lazy_names(__name__, {"Engine": "engine"})
