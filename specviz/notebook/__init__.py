"""Notebooks: the live board and a table of methods, without a server.

    from specviz import watch, compare
"""
from .. import later

_WHERE = {"Board": "board", "compare": "table", "watch": "board"}

__all__ = list(_WHERE)
__getattr__ = later(__name__, _WHERE)
