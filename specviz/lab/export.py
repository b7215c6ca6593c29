"""The viewer as one page without a trace: the browser puts its own records in, so that they need not come to the server."""
from __future__ import annotations

from typing import Any

from ..trace.page import to_html


def html(name: Any = None) -> str:
    """The stand-alone page; the block ``<script id="trace">`` holds a place for records."""
    return to_html([{}])
