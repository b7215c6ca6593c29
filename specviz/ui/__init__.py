"""The web page. Gradio is imported on first use of these names."""

from typing import TYPE_CHECKING

from .. import lazy_names

if TYPE_CHECKING:
    from .page import build_app, launch

_WHERE = {"build_app": "page", "launch": "page"}

__all__ = ["build_app", "launch"]
if not TYPE_CHECKING:  # so that a type checker reports names that do not exist
    __getattr__ = lazy_names(__name__, _WHERE)
