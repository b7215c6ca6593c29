"""Export the viewer as one HTML page. The page has no trace: the browser inserts its own records, so that
they are not sent to the server."""

from __future__ import annotations

from typing import Any

from ..trace.page import to_html


def html(name: Any = None) -> str:
    """Return the stand-alone page with an empty block ``<script id="trace">``, into which the browser
    inserts the records."""
    return to_html([{}])
