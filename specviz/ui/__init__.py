"""The web page. Gradio is imported on first use of these names."""

from .. import lazy_names

_WHERE = {"Engine": "engine", "build_app": "page", "launch": "page"}

__all__ = list(_WHERE)
__getattr__ = lazy_names(__name__, _WHERE)
