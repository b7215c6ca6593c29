"""Notebooks: the live board and a table of methods, without a server.

from specviz import watch, compare
"""

from typing import TYPE_CHECKING

from .. import lazy_names

if TYPE_CHECKING:
    from .board import Board, watch
    from .table import compare


_WHERE = {"Board": "board", "compare": "table", "watch": "board"}

__all__ = ["Board", "compare", "watch"]
if not TYPE_CHECKING:  # so that a type checker reports names that do not exist
    __getattr__ = lazy_names(__name__, _WHERE)
