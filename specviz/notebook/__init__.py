"""Notebooks: the live board and a table of methods, without a server.

from specviz import watch, compare
"""

from .. import lazy_names

_WHERE = {"Board": "board", "compare": "table", "watch": "board"}

__all__ = list(_WHERE)
__getattr__ = lazy_names(__name__, _WHERE)
